#!/usr/bin/env bash
# claim-target.sh COMMAND...   Runs a command that compiles, with the target folder claimed for this clone meanwhile.
#
# Clones share one target folder, so that RocksDB is compiled once. Cargo takes the crates of two clones for the same
# ones and tells fresh from stale by the files' times alone: after another clone compiled, files of ours that are
# older than its build would pass as compiled, and we would run that clone's code. So whoever finds another clone's
# name on the folder makes its own files new. Commands of one clone may use the folder together, clones take turns.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

turn_seconds=5400
stamp=$CARGO_TARGET_DIR/.runlog-clone
# The inode, too: another clone may have been moved to the place of a former one.
me="$top $(stat -c %d:%i "$top")"

# lock -s | -x
lock() {
  if flock -n "$1" 9; then return; fi
  say "another clone is using $CARGO_TARGET_DIR; waiting for it to finish"
  flock -w "$turn_seconds" "$1" 9 || die "it was not free after $turn_seconds s; CARGO_TARGET_DIR names another folder"
}

# All files, not only sources: a crate may include any of them.
renew() {
  cd "$top"
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
  else
    find . \( -name .git -o -name target -o -name bin \) -prune -o -type f -print0
  fi | xargs -0 -r touch -c --
}

mkdir -p "$CARGO_TARGET_DIR"
exec 9>>"$stamp"
# A lock cannot be turned from exclusive to shared without a gap, in which another clone may put its name: so look again.
until lock -s && [ "$(cat "$stamp")" = "$me" ]; do
  flock -u 9
  lock -x
  if [ "$(cat "$stamp")" != "$me" ]; then
    (renew)
    echo "$me" >"$stamp"
  fi
  flock -u 9
done

# The command may leave processes behind; they must not hold the lock.
"$top/scripts/rocksdb-progress.sh" announce 9>&-
"$top/scripts/rocksdb-progress.sh" follow $$ 9>&- &
status=0
"$@" 9>&- || status=$?
exit "$status"
