#!/usr/bin/env bash
# Prints the figures, raw librdkafka beside Runlog in the same run. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUNLOG_BIN="${RUNLOG_BIN:-$PWD/bin/runlog}"
cargo build --workspace --bin bench
exec "${CARGO_TARGET_DIR:?set by make}/debug/bench"
