//! Tests an agent that is killed in the middle of a call: a suite to begin your own with. `agent` is the agent under
//! test, and the airline that it books at.

mod agent;
mod containers;
mod in_process;
