#!/usr/bin/env bash
# Counts the instructions that reading one record's envelope takes, and fails where they are more than the ceiling.
# Instructions and not time: the count is the same however busy the machine is. What starting takes is in both runs.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

# A microsecond is some 4,000 instructions on the slowest machine in use; see docs/codec.md.
ceiling=1500
few=1000 many=11000

has valgrind || die "valgrind is missing; scripts/setup.sh test installs it"
timeout --foreground 5400 cargo build --workspace --bin envelope </dev/null

count() {
  timeout 300 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$CARGO_TARGET_DIR/debug/envelope" "$1" 2>&1 |
    awk '/Collected :/ { print $4 }'
}

per=$((($(count $many) - $(count $few)) / (many - few)))
say "reading an envelope takes $per instructions (at most $ceiling)"
[ "$per" -le "$ceiling" ]
