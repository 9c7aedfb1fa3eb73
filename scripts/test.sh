#!/usr/bin/env bash
# test.sh all [ARGUMENT...]       runs the tests of the gate with cargo-nextest, then the doctests
# test.sh fast [ARGUMENT...]      leaves out tests that need Docker, other languages or root
# test.sh nightly [ARGUMENT...]   runs the tests of the gate and the nightly tests
# test.sh compile                 compiles the tests and the command that they run, and nothing else
# Arguments are nextest's: `scripts/test.sh all -E 'test(takeover)'`. Groups and time limits: .config/nextest.toml.
# RUNLOG_BIN names the command under test; by default the command that is compiled with the tests.
# The last line is `N passed, N failed`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

mode=${1:-all}
shift || true
case $mode in
  all | compile) profile=default ;;
  fast | nightly) profile=$mode ;;
  *) echo "usage: $0 all|fast|nightly|compile [ARGUMENT...]" >&2; exit 2 ;;
esac
run_seconds=${RUNLOG_TEST_SECONDS:-3000}
if [ "$mode" = all ] || [ "$mode" = nightly ]; then
  mkdir -p "$CARGO_TARGET_DIR"
  scripts/prepare.sh </dev/null >"$CARGO_TARGET_DIR/prepare.log" 2>&1 &
  prepared=$!
fi
scripts/tools.sh cargo-nextest
export PATH=$tools/bin:$PATH
RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES
# The errors of tests name the failure; backtraces would hide it.
export RUST_LIB_BACKTRACE=${RUST_LIB_BACKTRACE:-0}

# Tests start programs by these names. Removes the programs of earlier builds, which this build may not replace.
find "$CARGO_TARGET_DIR/debug" "$CARGO_TARGET_DIR/debug/examples" -maxdepth 1 -type f -executable ! -name '*-????????????????' -delete 2>/dev/null || true
# Compiles only the examples that tests run: an example takes as long to compile as a test program. Needs a second command,
# because the first would compile the examples as tests.
examples=(--example agent_sdk_core --example bob_core --example codetether --example observability --example quickstart)
if ! {
  timeout --foreground --kill-after=20 5400 cargo nextest run --locked --tests --no-run </dev/null \
    && timeout --foreground --kill-after=20 5400 cargo build --locked "${examples[@]}" </dev/null
}; then
  say "the tests do not compile"
  echo '0 passed, 1 failed'
  exit 1
fi
scripts/build.sh tested
export RUNLOG_BIN=${RUNLOG_BIN:-$tested/runlog}
if [ "$mode" = compile ]; then exit; fi

# Tests that cannot run here are skipped by name, with a message.
skip=()
if ! compgen -G "$RUNLOG_SAMPLES/tau-bench/*.json" >/dev/null || ! compgen -G "$RUNLOG_SAMPLES/swe-agent/*.traj" >/dev/null; then
  say "left out: tests on recorded runs, because RUNLOG_SAMPLES=$RUNLOG_SAMPLES does not hold"
  say "  tau-bench/*.json    github.com/sierra-research/tau-bench, historical_trajectories"
  say "  swe-agent/*.traj    github.com/SWE-agent/SWE-agent, tests/test_data and trajectories/demonstrations"
  skip+=(--skip recorded)
fi
if [ "$(id -u)" -ne 0 ]; then
  say "left out: tests that fill a disk, because only root may mount one"
  skip+=(--skip disk_)
fi

if ! has_node; then
  say "left out: the tests of the TypeScript client, because Node 20.19 or newer, with npm, is missing"
  skip+=(--skip foreign_typescript)
fi

if [ "$mode" != fast ]; then
  if ! wait "$prepared"; then
    cat "$CARGO_TARGET_DIR/prepare.log" >&2
    say "scripts/prepare.sh failed; its output is above"
    echo '0 passed, 1 failed'
    exit 1
  fi
  deploy/runlog/build.sh "$(dirname "$RUNLOG_BIN")"
  # Unmounts the disks of killed tests.
  awk '$1 ~ /^runlog-test-/ { print substr($1, 13), $2 }' /proc/mounts | while read -r owner folder; do
    [ -d "/proc/$owner" ] || umount -l "$folder" || true
  done
  # One broker for all tests that do not stop their broker. It exits when this script exits, because then its stdin
  # ends.
  coproc broker { LD_LIBRARY_PATH=$tested exec "$CARGO_TARGET_DIR/debug/test_process" shared-broker; }
  if ! read -r -t 180 RUNLOG_TEST_BROKER <&"${broker[0]}"; then
    say "the tests' broker does not start"
    echo '0 passed, 1 failed'
    exit 1
  fi
  export RUNLOG_TEST_BROKER
fi

report=$top/target/nextest/$profile/junit.xml
rm -f "$report"
status=0
timeout --foreground --kill-after=20 "$run_seconds" \
  cargo nextest run --locked --tests --profile "$profile" "$@" -- "${skip[@]}" </dev/null || status=$?

# nextest runs no doctests. Some doctests show code that must not compile.
doctests=$(mktemp)
trap 'rm -f "$doctests"' EXIT
timeout --foreground --kill-after=20 1800 cargo test --locked --doc --no-fail-fast </dev/null 2>&1 | tee "$doctests" || true

# A run of named tests is judged by these tests alone. A whole run without a test on Kafka fails.
expected=()
if [ "$mode" != fast ] && [ $# -eq 0 ]; then expected=(runlog-tests::kafka); fi
python3 scripts/test_report.py "$report" "$status" "$doctests" "${expected[@]}"
