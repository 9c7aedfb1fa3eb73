#!/usr/bin/env bash
# Compiles the command and leaves it as ./bin/runlog.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

# With --workspace everywhere, cargo unites the crates' features always alike; it would compile the dependencies
# again for each other selection of crates.
timeout --foreground 5400 cargo build --workspace --bin runlog </dev/null

# Renamed into place, so that nobody runs half a file and a running one goes on.
mkdir -p bin
if ! cmp -s "$CARGO_TARGET_DIR/debug/runlog" bin/runlog; then
  cp "$CARGO_TARGET_DIR/debug/runlog" "bin/.runlog.$$"
  mv -f "bin/.runlog.$$" bin/runlog
fi
