#!/usr/bin/env bash
# Prints the figures, raw librdkafka beside Runlog in the same run. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUNLOG_BIN="${RUNLOG_BIN:-$PWD/bin/runlog}"
exec cargo run --release --package runlog-tests --bin bench
