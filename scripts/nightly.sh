#!/usr/bin/env bash
# nightly.sh model|faults|security|artefacts   Runs one part of the tests that are too long for the gate. A part runs all of
# its steps even if one fails, each within its own limit, and exits with 1 if any failed. The limits of a part add up to 2 to 6 hours.
#   target/nightly/PART.md     the report: each step with its minutes and its last lines
#   target/nightly/STEP.log    the output of a step
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

part=${1:-}
case $part in model | faults | security | artefacts) ;; *) echo "usage: $0 model|faults|security|artefacts" >&2; exit 2 ;; esac
folder=$top/target/nightly
report=$folder/$part.md
mkdir -p "$folder"
{
  echo "# nightly $part, $(git rev-parse --short HEAD)$([ -z "$(git status --porcelain)" ] || echo ' with changes'), $(date -u +%FT%RZ)"
  echo
} >"$report"
failed=0
RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES

# step MINUTES NAME COMMAND...   Runs a command for at most MINUTES.
step() {
  local limit=$1 name=$2 begun=$SECONDS status=0 result=passed
  shift 2
  local log=$folder/$name.log
  say "nightly $part: $name"
  timeout --kill-after=30 "${limit}m" "$@" </dev/null >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    result="FAILED ($status)"
    failed=1
  fi
  {
    printf '## %s: %s, %d min %02d s\n\n    %s\n\n' "$name" "$result" $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60)) "$*"
    tail -n 12 "$log" | sed 's/^/    /'
    echo
  } >>"$report"
  say "nightly $part: $name $result after $((SECONDS - begun)) s"
}
# Only the named tests, of all that the nightly profile has.
tests() { scripts/test.sh nightly -E "$1"; }
export -f tests

scripts/setup.sh test
scripts/rocksdb.sh

case $part in
  model)
    step 30 compile scripts/test.sh compile
    # Runs fixed numbers of seeds: only a count shows the coverage of rules and kills.
    RUNLOG_SEEDS=10000 step 10 rules bash -c "tests 'binary(model_rules)'"
    RUNLOG_LOOKS=1 RUNLOG_SEEDS=100000 RUNLOG_DISK_SEEDS=3000 RUNLOG_BULK_SEEDS=300 \
      step 40 model bash -c "tests 'binary(model_agrees) | test(/^bulk_build::/)'"
    # Half an hour of seeds at five a second, and other seeds each day: ten nights run 100,000.
    seeds=10000
    from=${RUNLOG_SIM_FROM:-$(($(date -u +%s) / 86400 * seeds))}
    say "nightly $part: simulation from seed $from"
    step 45 simulation env RUNLOG_SIM_FROM="$from" RUNLOG_SIM_SEEDS=$seeds bash -c "tests 'binary(simulation)'"
    RUNLOG_TRIALS=1000 step 30 model-on-kafka bash -c "tests 'binary(kafka) & test(/^model_agrees::/)'"
    step 30 instructions make instructions
    ;;
  faults)
    step 30 compile scripts/test.sh compile
    step 10 prepare scripts/prepare.sh
    step 35 cluster scripts/process.sh cluster 200
    step 20 kills scripts/process.sh kills 1000
    step 30 pauses scripts/process.sh pauses 1200
    RUNLOG_CUTS=3x30 step 10 cuts bash -c "tests 'binary(kafka) & test(/^connections_cut::/)'"
    step 10 three-brokers bash -c "tests 'binary(kafka) & test(/^three_brokers::/)'"
    step 10 power-cuts python3 tests/python/power_cuts.py "$tested/runlog" "$RUNLOG_SAMPLES" 20
    RUNLOG_BIN=$tested/runlog step 20 python-kills scripts/python.sh kills 300
    RUNLOG_BIN=$tested/runlog OUT=$folder/protocol-client.seeds \
      step 15 protocol-client node tests/protocol-client/many.mjs 10 3 1
    SERVE_ARGS="--write-schema 3" RUNLOG_BIN=$tested/runlog OUT=$folder/protocol-client-3.seeds \
      step 15 protocol-client-3 node tests/protocol-client/many.mjs 10 3 1
    if has_node; then RUNLOG_BIN=$tested/runlog step 45 fleet-kills scripts/python.sh fleet-kills 1000; fi
    RUNLOG_BIN=$tested/runlog step 20 graph-kills scripts/python.sh graph-kills 100
    ;;
  security)
    step 30 build make build
    step 55 fuzz scripts/fuzz.sh 1800
    step 10 hostile make hostile
    step 10 fronts make fronts
    step 10 rotation make rotation
    # Not among the artefacts, whose steps already need the hours of a part.
    step 75 page-memory make page-memory
    ;;
  artefacts)
    step 30 build make build
    # The build of the last night that passed, or another older one.
    older=${RUNLOG_OLD:-$folder/older/runlog}
    if [ -x "$older" ]; then
      step 10 mixed-fleet python3 tests/python/mixed_fleet.py "$older" bin/runlog
    else
      echo "## mixed-fleet: left out, because there is no older build at $older" >>"$report"
    fi
    step 5 wheels scripts/python.sh wheels
    step 10 compose make compose-check
    step 15 compose-three make compose-three-check
    # The first time, Go compiles Helm and kubectl-validate.
    step 30 chart scripts/chart.sh
    step 10 systemd scripts/systemd.sh
    step 15 mirror-maker scripts/mirror-maker.sh
    step 15 packages make packages
    step 10 checks scripts/checks.sh nightly
    # The tests of the gate and the nightly tests, on the command that users run.
    RUNLOG_BIN=$top/bin/runlog step 30 tests-on-release scripts/test.sh nightly -E 'not (binary(kafka) | binary(instructions))'
    step 15 parquet cargo test --locked --features runlog-cli/parquet --test commands foreign_exports
    RUNLOG_BIN=$top/bin/runlog RUNLOG_CONTAINERS=1 step 20 python scripts/python.sh test -m ''
    RUNLOG_BIN=$top/bin/runlog step 10 langgraph-js scripts/typescript.sh validate
    RUNLOG_BIN=$top/bin/runlog TESTCONTAINERS_RYUK_DISABLED=true step 20 trials scripts/python.sh trials 1000 --containers
    step 5 page-types scripts/page.sh types
    step 30 page make test-page
    step 30 heavy-ports make test-ports-heavy
    step 30 bench make bench QUICK=1
    if [ "$failed" = 0 ]; then rm -rf "$folder/older" && cp -r bin "$folder/older.new" && mv "$folder/older.new" "$folder/older"; fi
    ;;
esac
cat "$report" >&2
exit "$failed"
