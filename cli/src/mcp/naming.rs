//! The run and the id of a call, from the request and the environment.
//!
//! ```text
//!   run   _meta io.runlog/run ─▶ --run ─▶ _meta threadId / the session's environment, with the server's name ─▶ a new run
//!   id    _meta io.runlog/callId, claudecode/toolUseId
//! ```

use super::message::Members;
use runlog_schemas::id::RunId;

/// Members of `_meta` that name the model's call. The same id is the same call.
const CALL_IDS: [&str; 2] = ["io.runlog/callId", "claudecode/toolUseId"];
/// The longest id of a call that is kept, bytes.
const CALL_ID_BYTES_MAX: usize = 200;
/// The longest part of a run id that comes from a server's name, bytes.
const SERVER_BYTES_MAX: usize = 60;

/// The sources of run ids that are the same for all calls.
#[derive(Clone, Debug)]
pub(crate) struct Naming {
    /// The flag `--run`.
    pub(crate) fixed: Option<RunId>,
    /// The client's session, from the environment.
    pub(crate) session: Option<String>,
    /// The run of this connection, for a client that names none.
    pub(crate) connection: String,
}

impl Naming {
    /// Returns the run of a call. `server` is the server's own name, as every server of a client needs another run.
    ///
    /// Errors: the text is no run id.
    pub(crate) fn run_of(&self, meta: &Members, server: Option<&str>) -> Result<RunId, String> {
        if let Some(run) = meta.text("io.runlog/run") {
            return parse(run);
        }
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let server = plain(server.unwrap_or("mcp"));
        match meta.text("threadId").as_ref().or(self.session.as_ref()) {
            Some(shared) => parse(format!("{}/{server}", plain(shared))),
            None => parse(format!("mcp/{server}/{}", self.connection)),
        }
    }
}

fn parse(run: String) -> Result<RunId, String> {
    crate::value::run_id(&run)
}

/// Keeps letters, digits and `.-_` of a name.
fn plain(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    let plain: String = name.chars().take(SERVER_BYTES_MAX).map(keep).collect();
    if plain.trim_matches('.').is_empty() { "mcp".to_owned() } else { plain }
}

/// Returns the id that the client gives the call.
pub(crate) fn call_id(meta: &Members) -> Option<String> {
    let given = CALL_IDS.iter().find_map(|name| Some(format!("{name} {}", meta.text(name)?)))?;
    (given.len() <= CALL_ID_BYTES_MAX).then_some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_run_wins_and_servers_of_a_session_have_runs_of_their_own() {
        let meta = |json: &str| serde_json::from_str::<Members>(json).unwrap();
        let run =
            |naming: &Naming, json: &str| naming.run_of(&meta(json), Some("air port")).unwrap().as_str().to_owned();
        let all = Naming { fixed: parse("fixed".into()).ok(), session: Some("s".into()), connection: "c".into() };
        assert_eq!(run(&all, r#"{"io.runlog/run": "r/1", "threadId": "t"}"#), "r/1");
        assert_eq!(run(&all, r#"{"threadId": "t"}"#), "fixed");
        let derived = Naming { fixed: None, ..all };
        assert_eq!(run(&derived, r#"{"threadId": "t"}"#), "t/air-port");
        assert_eq!(run(&derived, "{}"), "s/air-port");
        assert_eq!(run(&Naming { session: None, ..derived }, "{}"), "mcp/air-port/c");
    }
}
