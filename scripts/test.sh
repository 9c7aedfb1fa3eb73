#!/usr/bin/env bash
# test.sh all    runs the tests tier after tier; needs Docker and the Kafka image
# test.sh fast   leaves out the tiers that need Kafka, other languages or root, and what needs valgrind
# The tier of an integration test is told by the name of its file in tests/tests and ports/contract/tests: kafka_*, recorded_*,
# foreign_* (with a Python and a Java), disk_* (which mount small disks: root only), all others plain.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

mode=${1:-all}
case $mode in all | fast) ;; *) echo "usage: $0 all|fast" >&2; exit 2 ;; esac

compile_seconds=5400
tiers=(unit plain recorded)
declare -A seconds=([unit]=600 [plain]=1500 [recorded]=900 [foreign]=900 [disk]=900 [kafka]=1800)
declare -A passed failed ignored note
logs=$(mktemp -d)

if [ "$mode" = all ]; then
  tiers+=(foreign disk kafka)
  scripts/reap.sh leftovers
fi

# Started before the tests' variable is set, so that it does not end itself. It must not keep make's pipes open.
setsid scripts/reap.sh watch $$ "${RUNLOG_MAKE_PID:-}" </dev/null >/dev/null 2>&1 &

export RUNLOG_BIN=$top/bin/runlog
RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES
export RUNLOG_TEST_OWNER=$$
[ -x "$RUNLOG_BIN" ] || die "bin/runlog is not there; make build makes it"

# shellcheck disable=SC2317,SC2329
finish() {
  env -u RUNLOG_TEST_OWNER scripts/reap.sh now $$
  rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# The integration tests of one tier, as cargo's arguments.
tests_of() {
  local file name tier
  for file in tests/tests/*.rs tests/tests/*/main.rs ports/contract/tests/*.rs; do
    if [ ! -e "$file" ]; then continue; fi
    name=${file#tests/tests/}
    name=${name#ports/contract/tests/}
    name=${name%.rs}
    name=${name%/main}
    case $name in kafka_*) tier=kafka ;; recorded_*) tier=recorded ;; foreign_*) tier=foreign ;; disk_*) tier=disk ;; *) tier=plain ;; esac
    if [ "$tier" = "$1" ]; then printf -- '--test %s ' "$name"; fi
  done
}

# The crates' own integration tests, which run with their unit tests.
tests_of_crates() {
  local file
  for file in {schemas,content,registry,log,producer,projector,ports,cli,tests/model}/tests/*.rs; do
    if [ "$mode" = fast ] && [ "$file" = schemas/tests/instructions.rs ]; then continue; fi
    if [ -e "$file" ]; then printf -- '--test %s ' "$(basename "$file" .rs)"; fi
  done
}

samples() { compgen -G "$RUNLOG_SAMPLES/tau-bench/*.json" || compgen -G "$RUNLOG_SAMPLES/swe-agent/*.traj"; }

# run TIER ARGUMENT...   One `cargo test`, added to its tier's figures.
run() {
  local tier=$1 log=$logs/$1 status=0 child viewer counts p f i
  shift
  : >"$log"
  # timeout leads a process group of its own and ends all of it. The tests write to a file that tail shows: a process
  # that outlives them would hold a pipe open for ever.
  timeout --kill-after=20 "${seconds[$tier]}" cargo test --workspace --no-fail-fast "$@" </dev/null >"$log" 2>&1 &
  child=$!
  tail -n +1 -s 0.2 -f --pid=$child "$log" &
  viewer=$!
  wait $child || status=$?
  wait $viewer || true
  counts=$(awk '/^test result: / { p += $4; f += $6; i += $8 } END { print p + 0, f + 0, i + 0 }' "$log")
  read -r p f i <<<"$counts"
  # What ended without a result has failed as well.
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  case $status in
    0) ;;
    124 | 137) note[$tier]="stopped after ${seconds[$tier]} s" ;;
    *) note[$tier]='see above' ;;
  esac
  passed[$tier]=$((${passed[$tier]:-0} + p))
  failed[$tier]=$((${failed[$tier]:-0} + f))
  ignored[$tier]=$((${ignored[$tier]:-0} + i))
}

run_tier() {
  local arguments
  case $1 in
    unit)
      # shellcheck disable=SC2046
      run unit --lib --bins $(tests_of_crates)
      run unit --doc
      return
      ;;
    recorded)
      if [ -z "$(samples)" ]; then
        say "no recorded runs in RUNLOG_SAMPLES=$RUNLOG_SAMPLES, so the tests on them do not run. To get some:"
        say "  tau-bench/*.json    github.com/sierra-research/tau-bench, historical_trajectories"
        say "  swe-agent/*.traj    github.com/SWE-agent/SWE-agent, tests/test_data and trajectories/demonstrations"
        note[$1]='no samples'
        return
      fi
      ;;
    disk)
      if [ "$(id -u)" -ne 0 ]; then
        say "only root may mount a disk, so the tests that fill one do not run"
        note[$1]='not root'
        return
      fi
      ;;
  esac
  read -r -a arguments <<<"$(tests_of "$1")"
  if [ ${#arguments[@]} -gt 0 ]; then run "$1" "${arguments[@]}"; fi
}

# First, with cargo's own progress shown, so that the time of a tier is that of its tests.
if ! timeout --foreground --kill-after=20 "$compile_seconds" cargo test --workspace --no-run </dev/null; then
  say "the tests do not compile"
  echo '0 passed, 1 failed'
  exit 1
fi

for tier in "${tiers[@]}"; do
  say "tests: $tier"
  run_tier "$tier"
done

# A tier that is there to be run and ran nothing proves nothing.
if [ "$mode" = all ] && [ $((${passed[kafka]:-0} + ${failed[kafka]:-0})) -eq 0 ]; then
  failed[kafka]=1
  note[kafka]='ran no test'
fi

total_passed=0 total_failed=0
printf '\n%-10s %8s %8s %8s\n' tier passed failed ignored
for tier in "${tiers[@]}"; do
  printf '%-10s %8d %8d %8d   %s\n' "$tier" "${passed[$tier]:-0}" "${failed[$tier]:-0}" "${ignored[$tier]:-0}" "${note[$tier]:-}"
  total_passed=$((total_passed + ${passed[$tier]:-0}))
  total_failed=$((total_failed + ${failed[$tier]:-0}))
done
echo
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ]
