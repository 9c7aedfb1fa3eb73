#!/usr/bin/env bash
# from-nothing.sh [COMMAND...]   Runs a command, .ci/run by default, in a fresh clone of HEAD with an empty HOME, as on a machine
# that has compiled and fetched nothing: no crates, no Maven repository, no Python environment, no tools, no caches. Installed
# system packages, Docker's images and the toolchains stay. KEEP=1 keeps the folder. RUNLOG_SAMPLES names
# the recorded runs.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

[ $# -gt 0 ] || set -- .ci/run
work=$(mktemp -d)
[ -n "${KEEP:-}" ] || trap 'rm -rf "$work"' EXIT
git clone --quiet "$top" "$work/runlog"
mkdir "$work/home"
RUNLOG_SAMPLES=$(realpath -m "${RUNLOG_SAMPLES:-$top/../shared/data}")
export RUNLOG_SAMPLES
# Toolchain managers install into HOME.
export RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} PYENV_ROOT=${PYENV_ROOT:-$HOME/.pyenv}
unset CARGO_TARGET_DIR CARGO_HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME ROCKSDB_LIB_DIR
# Java asks the system where a user's home is.
export HOME=$work/home MAVEN_OPTS="${MAVEN_OPTS:-} -Duser.home=$work/home"

cd "$work/runlog"
status=0
"$@" </dev/null || status=$?
say "from nothing: '$*' took $((SECONDS / 60)) min $((SECONDS % 60)) s, exit code $status${KEEP:+, in $work}"
exit "$status"
