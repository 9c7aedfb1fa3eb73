//! A gate between an MCP client and an MCP server: no tool call runs twice, and each new call runs.
//!
//! ```text
//!   client ──stdin──▶ gate ─── everything else, unchanged ──▶ upstream ──▶ MCP server (a command, or a URL)
//!                      └ tools/call ─▶ run ─▶ producer's gate ─▶ upstream
//!   client ◀─stdout── gate ◀── everything but answers to gated calls ─────┘
//! ```
//!
//! Invariants:
//!
//! * A `tools/call` reaches the server only as the effect of a claimed run's call, or if the policy passes its tool.
//! * Messages keep their bytes. A gated request keeps the text of every member.
//! * A call whose answer the client did not get answers the next equal call ([`calls`]). An answered call never does.
//!
//! Not built on the official SDK `rmcp` (3.11): it parses into typed messages, drops unknown members (`task` of a call) and
//! ignores unknown notifications, which a gate must pass through.

pub(crate) mod answer;
pub(crate) mod calls;
pub(crate) mod gate;
pub(crate) mod message;
pub(crate) mod naming;
pub(crate) mod policy;
pub(crate) mod runs;
pub(crate) mod stdio;
pub(crate) mod upstream;
