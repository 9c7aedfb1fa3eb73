#!/usr/bin/env bash
# The gate: checks, then all tests. Writes the id of HEAD to target/verified if everything passed on a clean tree.
# Only the table of minutes follows the line `N passed, N failed`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

verified=$top/target/verified
rm -f "$verified"
head_of_clean_tree() { [ -n "$(git status --porcelain)" ] || git rev-parse HEAD; }
head=$(head_of_clean_tree)

minutes=()
phase() {
  local begun=$SECONDS name=$1
  shift
  "$@"
  minutes+=("$(printf '%3d min %02d s  %s' $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60)) "$name")")
}
table() { printf '%s\n' "${minutes[@]}" >&2; }
trap table EXIT

# Docker's image, the Python environments and Java's jars are fetched while cargo compiles.
scripts/prepare.sh </dev/null >/dev/null 2>&1 &
phase 'compile the tests' scripts/test.sh compile
phase 'checks' scripts/checks.sh
phase 'tests' scripts/test.sh all

if [ -n "$head" ] && [ "$head" = "$(head_of_clean_tree)" ]; then
  mkdir -p "${verified%/*}"
  echo "$head" >"$verified"
else
  say "target/verified is not written: the tree has changes that are not committed"
fi
