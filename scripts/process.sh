#!/usr/bin/env bash
# process.sh NAME [ARGUMENT...]   Runs one of the processes of tests/src/bin/test_process/main.rs, which `test.sh compile` compiled.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES RUNLOG_BIN=${RUNLOG_BIN:-$tested/runlog} LD_LIBRARY_PATH=$tested
exec "$CARGO_TARGET_DIR/debug/test_process" "$@" </dev/null
