#!/usr/bin/env bash
# test.sh all [ARGUMENT...]    runs all tests with cargo-nextest, then the doctests; needs Docker and the Kafka image
# test.sh fast [ARGUMENT...]   leaves out what needs Kafka, other languages, root or valgrind
# Arguments are nextest's: `scripts/test.sh all -E 'test(takeover)'`. Groups and time limits: .config/nextest.toml.
# The last line is `N passed, N failed`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

mode=${1:-all}
shift || true
case $mode in all) profile=default ;; fast) profile=fast ;; *) echo "usage: $0 all|fast [ARGUMENT...]" >&2; exit 2 ;; esac
run_seconds=5000
# What the demo's build leaves off is tested too, with one set of features for all that is compiled here.
features=(--features runlog-cli/parquet)

scripts/tools.sh cargo-nextest
export PATH=$tools/bin:$PATH
export RUNLOG_BIN=$top/bin/runlog
RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES
# Errors of tests say what failed; a backtrace of each hides it.
export RUST_LIB_BACKTRACE=${RUST_LIB_BACKTRACE:-0}
[ -x "$RUNLOG_BIN" ] || die "bin/runlog is missing; make build makes it"

# What cannot run here is left out by name, and said.
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

# First by itself, so that the broker does not wait beside the compiler.
if ! timeout --foreground --kill-after=20 5400 cargo nextest run --workspace "${features[@]}" --no-run </dev/null; then
  say "the tests do not compile"
  echo '0 passed, 1 failed'
  exit 1
fi

if [ "$mode" = all ]; then
  # Disks of tests that were killed.
  awk '$1 ~ /^runlog-test-/ { print substr($1, 13), $2 }' /proc/mounts | while read -r owner folder; do
    [ -d "/proc/$owner" ] || umount -l "$folder" || true
  done
  # One broker for all tests that do not stop theirs. It ends when this script does, however that ends: then its stdin does.
  coproc broker { LD_LIBRARY_PATH=$top/bin exec "$CARGO_TARGET_DIR/debug/shared_broker"; }
  if ! read -r -t 180 RUNLOG_TEST_BROKER <&"${broker[0]}"; then
    say "the tests' broker does not start"
    echo '0 passed, 1 failed'
    exit 1
  fi
  export RUNLOG_TEST_BROKER
fi

report=$top/target/nextest/$profile/junit.xml
rm -f "$report"
timeout --foreground --kill-after=20 "$run_seconds" \
  cargo nextest run --workspace "${features[@]}" --profile "$profile" "$@" -- "${skip[@]}" </dev/null || true

# nextest runs no doctests. Some show what must not compile.
doctests=$(mktemp)
trap 'rm -f "$doctests"' EXIT
timeout --foreground --kill-after=20 1800 cargo test --workspace "${features[@]}" --doc --no-fail-fast </dev/null 2>&1 | tee "$doctests" || true

# Whoever names tests gets what is named; the whole run without a test on Kafka proves nothing.
expected=()
if [ "$mode" = all ] && [ $# -eq 0 ]; then expected=(runlog-tests::kafka); fi
python3 scripts/test_report.py "$report" "$doctests" "${expected[@]}"
