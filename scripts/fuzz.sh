#!/usr/bin/env bash
# fuzz.sh [SECONDS]   Fuzzes the readers of foreign bytes, and prints executions per second and edge coverage. schemas/fuzz
# has records off the wire and in JSON; projector/fuzz has requests, and the files of credentials. The targets share the time.
# TARGETS="jwt request" runs only these two targets.
#
# The stable compiler instruments with the flags below; only the address sanitizer would need another compiler, and the
# code under test has no `unsafe`. A finding is left in CRATE/fuzz/artifacts/ and becomes a test: of records in
# schemas/tests/claims/hostile.rs, otherwise beside its parser.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

total=${1:-140}
case $total in '' | *[!0-9]* | 0) echo "usage: $0 [SECONDS]" >&2; exit 2 ;; esac
# The crate of each target, and its seed inputs: the golden records, and small files.
declare -A crates=([wire]=schemas [draft]=schemas [token_file]=projector [jwt]=projector [certificate]=projector
  [cursor]=projector [request]=projector)
declare -A seeds=([wire]='schemas/golden/v*' [draft]='schemas/examples schemas/golden/v*')
read -ra targets <<<"${TARGETS:-wire draft token_file jwt certificate cursor request}"
for target in "${targets[@]}"; do
  [ -n "${crates[$target]:-}" ] || die "no fuzz target $target; there are: ${!crates[*]}"
done
each=$(((total + ${#targets[@]} - 1) / ${#targets[@]}))

host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz
# With --target these are for the crates under test, not for build scripts.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Dwarnings"
RUSTFLAGS=$(echo "$RUSTFLAGS" | tr '\n' ' ')

mapfile -t built < <(for target in "${targets[@]}"; do echo "${crates[$target]}"; done | sort -u)
for crate in "${built[@]}"; do
  say "building the fuzz targets of $crate"
  timeout --foreground 3600 cargo build --locked --manifest-path "$crate/fuzz/Cargo.toml" --release --target "$host" </dev/null
done

# Where scripts/rocksdb.sh puts the library that the targets of the projector are linked with.
rocksdb=$(find "$top/.cargo/rocksdb" -name 'librocksdb.so.*' -printf '%h\n' -quit 2>/dev/null || true)
# The corpus is kept between runs, outside the clone.
found=$cache/fuzz-corpus
status=0
for target in "${targets[@]}"; do
  crate=${crates[$target]}
  artifacts=$crate/fuzz/artifacts/$target/
  mkdir -p "$found/$target" "$artifacts"
  log=$(mktemp)
  say "fuzzing $target for $each s"
  # shellcheck disable=SC2086
  LD_LIBRARY_PATH=$rocksdb timeout --foreground --kill-after=20 $((each + 120)) "$CARGO_TARGET_DIR/$host/release/$target" \
    "$found/$target" ${seeds[$target]:-$crate/fuzz/seeds/$target} -max_total_time="$each" -max_len=16384 -timeout=10 \
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
