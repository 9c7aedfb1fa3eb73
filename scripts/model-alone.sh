#!/usr/bin/env bash
# Checks that the model in tests/model is independent: it contains no crate and no file of Runlog.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

crates=$(cargo tree --locked --package runlog-model --all-features --edges all --prefix none --format '{p}' </dev/null)
ours=$(awk '/^runlog/ && $1 != "runlog-model" { print $1 }' <<<"$crates" | sort -u)
[ -z "$ours" ] || die "tests/model depends on" $ours

# A file of another crate would be included by its path.
if grep -rnE '#\[path|include(_str|_bytes)?!' tests/model --include='*.rs'; then
  die "tests/model includes other files"
fi
say "tests/model does not depend on Runlog"
