//! `whoami`: the permissions of this command's credential.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    session::{READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::answer::{Feature, WhoAmI};

pub(super) async fn run(session: &Session, args: args::WhoAmI) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, READ_WAIT);
    session.needs(&[Feature::WhoAmI], wait).await?;
    let caller: WhoAmI = session.client.get(Target::new("/v1/whoami"), wait).await?;
    session.output.answer(&caller, human)?;
    Ok(Answer::Yes)
}

fn human(caller: &WhoAmI, text: &mut Text) {
    text.facts([
        ("credential", Cell::from(caller.kind.as_str())),
        ("principal", caller.principal.as_deref().into()),
        ("scopes", caller.scopes.join(", ").into()),
        ("runs", caller.runs.join(", ").into()),
        ("content", if caller.masked { "masked" } else { "readable" }.into()),
        ("expires", caller.expires.as_deref().into()),
    ]);
}
