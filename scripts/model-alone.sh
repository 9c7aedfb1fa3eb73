#!/usr/bin/env bash
# The model in tests/model is independent: it has nothing of Runlog, neither as a crate nor as a file.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

crates=$(cargo tree --locked --package runlog-model --all-features --edges all --prefix none --format '{p}' </dev/null)
ours=$(awk '/^runlog/ && $1 != "runlog-model" { print $1 }' <<<"$crates" | sort -u)
[ -z "$ours" ] || die "tests/model depends on" $ours

# A file of another crate would come in by its path.
if grep -rnE '#\[path|include(_str|_bytes)?!' tests/model --include='*.rs'; then
  die "tests/model takes in other files"
fi
say "tests/model depends on nothing of Runlog"
