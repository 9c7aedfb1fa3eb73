//! The Python client keeps its promises against this build's server: the gate with its interruptions, killed and racing
//! processes, and the LangGraph checkpointer with its own conformance suite.

use std::process::Command;

use runlog_tests::programs::{here, output};

#[test]
fn the_python_client_passes_its_tests_against_this_server() -> anyhow::Result<()> {
    // Two processes share the tests: most of them wait for other processes.
    output(Command::new(here("../scripts/python.sh")).args(["test", "-n", "2", "--dist", "worksteal"])).map(drop)
}
