//! The TypeScript client keeps its promises against this build's server: the gate with cancellations and lost answers, killed and racing
//! processes, the shared vectors, and its types against the server's OpenAPI document.

use std::process::Command;

use runlog_tests::programs::{here, output};

#[test]
fn the_typescript_client_passes_its_tests_against_this_server() -> anyhow::Result<()> {
    output(Command::new(here("../scripts/typescript.sh")).arg("test")).map(drop)
}
