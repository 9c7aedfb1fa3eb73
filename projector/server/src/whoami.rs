//! `GET /v1/whoami`: the permissions of the request's credential.

use super::{
    app::App,
    auth::{Caller, permissions::Scope},
    parameters::Nothing,
};
use axum::{Json, extract::Query};
use runlog_projector::index::query::time;
use runlog_schemas::answer::WhoAmI;

pub(super) async fn whoami(app: App, _: Query<Nothing>) -> Json<WhoAmI> {
    Json(answer(&app.caller))
}

fn answer(caller: &Caller) -> WhoAmI {
    let scopes = Scope::ALL.iter().filter(|scope| caller.has(**scope));
    WhoAmI {
        kind: caller.kind().into(),
        principal: caller.principal().map(str::to_owned),
        scopes: scopes.map(|scope| scope.as_str().to_owned()).collect(),
        runs: caller.visible().patterns(),
        masked: !caller.has(Scope::ReadContent),
        expires: caller.expires_millis().map(time),
    }
}
