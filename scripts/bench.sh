#!/usr/bin/env bash
# bench.sh run|compare|soak ...   the benchmarks (tests/bench), in the release build that users run. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
# An empty WITHOUT leaves out no peer.
if [ -z "${WITHOUT:-}" ]; then unset WITHOUT; fi
export RUNLOG_BIN="${RUNLOG_BIN:-$PWD/bin/runlog}"
exec cargo run --release --quiet --package runlog-bench --bin bench -- "$@"
