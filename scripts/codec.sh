#!/usr/bin/env bash
# Measures our codec beside others, on the recorded runs of tau-bench in RUNLOG_SAMPLES. Compiled in a folder of its own;
# RocksDB is no part of it. The last thing on stdout is a table in Markdown.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

export CARGO_TARGET_DIR=${RUNLOG_CODEC_TARGET_DIR:-$(dirname "$CARGO_TARGET_DIR")/codec}
timeout --foreground 1800 cargo build --locked --manifest-path schemas/bench/Cargo.toml </dev/null

samples=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
mapfile -t files < <(compgen -G "$samples/tau-bench/*.json" || true)
if [ ${#files[@]} -eq 0 ]; then
  say "no recorded runs in RUNLOG_SAMPLES=$samples, so these are the records of schemas/bench/run.json, which is invented."
  say "  tau-bench/*.json    github.com/sierra-research/tau-bench, historical_trajectories"
fi
"$CARGO_TARGET_DIR/debug/codec" table "${files[@]}"
