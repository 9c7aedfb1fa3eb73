#!/usr/bin/env bash
# fuzz.sh [SECONDS]   Fuzzes the reader of records, half of the time with bytes off the wire and half with JSON, and says
# executions per second and edge coverage. Only the schemas crate is compiled, in a folder of its own.
#
# The stable compiler instruments with the flags below; only the address sanitizer would need another one, and the code
# under test has no `unsafe`. A finding is left in schemas/fuzz/artifacts/ and becomes a test in schemas/tests/claims/hostile.rs.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

total=${1:-60}
case $total in '' | *[!0-9]* | 0) echo "usage: $0 [SECONDS]" >&2; exit 2 ;; esac
targets=(wire draft)
each=$(((total + ${#targets[@]} - 1) / ${#targets[@]}))

host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz
# With --target these are for the crates under test, not for build scripts.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Dwarnings"
RUSTFLAGS=$(echo "$RUSTFLAGS" | tr '\n' ' ')

say "building the fuzz targets"
timeout --foreground 1800 cargo build --locked --manifest-path schemas/fuzz/Cargo.toml --release --target "$host" </dev/null

# What is found on the way stays between runs, outside the clone.
found=$cache/fuzz-corpus
status=0
# The records that the tests keep are where it begins.
declare -A seeds=([wire]='schemas/golden/v*' [draft]='schemas/examples schemas/golden/v*')
for target in "${targets[@]}"; do
  artifacts=schemas/fuzz/artifacts/$target/
  mkdir -p "$found/$target" "$artifacts"
  log=$(mktemp)
  say "fuzzing $target for $each s"
  # shellcheck disable=SC2086
  timeout --foreground --kill-after=20 $((each + 120)) "$CARGO_TARGET_DIR/$host/release/$target" \
    "$found/$target" ${seeds[$target]} -max_total_time="$each" -max_len=16384 -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$artifacts" </dev/null >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 60 "$log" >&2
    rm -f "$log"
    die "fuzzing $target found something: see $artifacts"
  fi
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  features=$(sed -n 's/.* ft: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  all=$(sed -n 's/.*Loaded 1 PC tables (\([0-9]*\) PCs).*/\1/p' "$log" | head -n 1)
  say "fuzzed $target: $runs executions, $speed per second, $edges of $all edges covered, $features features"
  rm -f "$log"
done
