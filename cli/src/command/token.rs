//! `token`: creates, lists and revokes tokens in the file that servers read.

use crate::{
    args::{TokenAction, TokenCreate, TokenRevoke, TokensArg},
    command::confirm,
    error::Error,
    exit::Answer,
    output::Output,
    text::Cell,
};
use runlog_schemas::{answer::ErrorKind, datum::hex};
use runlog_server::auth::{
    identities::Identity,
    receipts::KEY_BYTES,
    token_file::{self, Entry, SECRET_BYTES, Scope, TokenFile},
};
use serde::Serialize;
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Time limit for waiting until other commands have changed the file. Each takes some milliseconds, except `revoke`, which may
/// wait for a confirmation.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// An entry of the list.
#[derive(Debug, Serialize)]
struct Listed<'e> {
    id: &'e str,
    #[serde(flatten)]
    entry: &'e Entry,
    expired: bool,
}

pub(super) fn run(action: TokenAction, output: &Output) -> Result<Answer, Error> {
    match action {
        TokenAction::Create(args) => create(args, output),
        TokenAction::List(args) => list(&args, output),
        TokenAction::Revoke(args) => revoke(&args, output),
    }
}

fn create(args: TokenCreate, output: &Output) -> Result<Answer, Error> {
    let path = &args.file.tokens;
    let _lock = lock(path)?;
    let mut file = if path.exists() { TokenFile::read(path).map_err(unusable)? } else { TokenFile::default() };
    let secret = random::<SECRET_BYTES>()?;
    if file.receipt_key.is_none() {
        file.receipt_key = Some(hex(&random::<KEY_BYTES>()?));
    }
    let (entry, token) = Entry::new(args.principal, args.scopes.into_iter().collect(), args.runs, &secret);
    let now = crate::ambient::now_millis();
    let after = |wait: Duration| now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let entry = Entry {
        created: Some(token_file::format_time(now)),
        expires: args.expires_in.map(|wait| token_file::format_time(after(wait))),
        ..entry
    };
    entry.check().map_err(|why| Error::usage(format!("no token was created: {why}")))?;
    file.tokens.push(entry.clone());
    file.write(path).map_err(unusable)?;
    let made = json!({ "token": token, "id": entry.id(), "principal": entry.principal, "scopes": entry.scopes,
        "runs": entry.runs, "expires": entry.expires });
    output.answer(&made, |_, text| text.line([Cell::from(&token)]))?;
    output.note(
        "This is the only time that the token is shown. Give it to clients as RUNLOG_TOKEN, or in a file of their own.",
    );
    Ok(Answer::Yes)
}

fn list(args: &TokensArg, output: &Output) -> Result<Answer, Error> {
    let file = TokenFile::read(&args.tokens).map_err(unusable)?;
    let now = crate::ambient::now_millis();
    let checked = file.checked().map_err(unusable)?;
    let listed: Vec<_> = checked
        .iter()
        .map(|(entry, checked)| Listed {
            id: entry.id(),
            entry,
            expired: checked.expires_millis.is_some_and(|at| at <= now),
        })
        .collect();
    output.answer(&json!({ "tokens": listed, "identities": file.identities }), |_, text| {
        let expires = |token: &Listed<'_>| Cell::from(token.entry.expires.as_deref().unwrap_or("never"));
        text.list(&listed, "no tokens")
            .column("ID", |token| Cell::from(token.id))
            .column("PRINCIPAL", |token| &token.entry.principal)
            .column("SCOPES", |token| Cell::from(names(&token.entry.scopes)))
            .column("RUNS", |token| Cell::from(token.entry.runs.join(" ")))
            .column("EXPIRES", |token| if token.expired { expires(token).bad() } else { expires(token) })
            .print();
        if !file.identities.is_empty() {
            text.list(&file.identities, "no identities")
                .column("CREDENTIAL", |identity| Cell::from(credential(identity)))
                .column("PRINCIPAL", |identity| &identity.principal)
                .column("SCOPES", |identity| Cell::from(names(&identity.scopes)))
                .column("RUNS", |identity| Cell::from(identity.runs.join(" ")))
                .print();
        }
    })?;
    Ok(Answer::Yes)
}

/// Formats the credential of an identity.
fn credential(identity: &Identity) -> String {
    let jwt = identity.jwt.as_ref().map(|jwt| format!("jwt:{} of {}", jwt.subject, jwt.issuer));
    jwt.or_else(|| identity.certificate.as_ref().map(ToString::to_string)).unwrap_or_default()
}

fn names(scopes: &BTreeSet<Scope>) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
}

fn revoke(args: &TokenRevoke, output: &Output) -> Result<Answer, Error> {
    let path = &args.file.tokens;
    let _lock = lock(path)?;
    let mut file = TokenFile::read(path).map_err(unusable)?;
    for id in &args.ids {
        // A shorter id could match tokens that are created later.
        if !file.tokens.iter().any(|entry| entry.id() == id) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("no token {id} in {}; nothing was revoked", path.display()),
            ));
        }
    }
    let (gone, kept): (Vec<Entry>, Vec<Entry>) = file.tokens.into_iter().partition(|entry| match &args.principal {
        Some(principal) => entry.principal == *principal,
        None => args.ids.iter().any(|id| id == entry.id()),
    });
    let is_named = |identity: &Identity| args.principal.as_ref().is_some_and(|name| identity.principal == *name);
    let (identities_gone, identities_kept): (Vec<_>, Vec<_>) = file.identities.into_iter().partition(is_named);
    if gone.is_empty() && identities_gone.is_empty() {
        let principal = args.principal.as_deref().unwrap_or_default();
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{principal} has no tokens or identities in {}", path.display()),
        ));
    }
    let tokens = gone.iter().map(|entry| format!("{} of {}", entry.id(), entry.principal));
    let identities =
        identities_gone.iter().map(|identity| format!("{} of {}", credential(identity), identity.principal));
    let what = tokens.chain(identities).collect::<Vec<_>>().join(", ");
    confirm::confirm(args.consent, &format!("revoke {what}"), |_| {})?;
    (file.tokens, file.identities) = (kept, identities_kept);
    file.write(path).map_err(unusable)?;
    let ids: Vec<_> = gone.iter().map(Entry::id).collect();
    output.answer(&json!({ "revoked": ids, "revoked_identities": identities_gone }), |_, text| {
        text.line([Cell::from(format!("revoked {what}")).good()])
    })?;
    Ok(Answer::Yes)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot get random bytes for a secret from the system")
            .because(error.to_string())
    })?;
    Ok(bytes)
}

/// Lets one command at a time change the file. Waits for the other commands, up to [`LOCK_WAIT`].
///
/// Only the owner may open the lock file. Another user who can open it could hold the lock and so prevent a revocation.
fn lock(path: &Path) -> Result<File, Error> {
    let beside = path.with_extension("lock");
    let failed = |error: io::Error| {
        let what = format!("cannot lock the token file {}", path.display());
        Error::new(ErrorKind::Invalid, what).because(error)
    };
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(beside);
    let lock = lock.map_err(failed)?;
    // An earlier version created it with the permissions of umask.
    lock.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let wait = humantime::format_duration(LOCK_WAIT);
                let what =
                    format!("another command has locked the token file {} for {wait}; try again", path.display());
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

fn unusable(error: token_file::Error) -> Error {
    Error::new(ErrorKind::Invalid, "the token file was not changed").because(error)
}
