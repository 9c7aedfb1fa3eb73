#!/usr/bin/env bash
# tools.sh NAME...   Installs the pinned versions of cargo-deny and cargo-nextest where they are missing, for all clones of
# this user (three minutes each on two cores, once), and prints nothing on stdout.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

declare -A versions=([cargo-deny]=0.20.2 [cargo-nextest]=0.9.151)
# nextest's own updater is left out: this script pins the version.
declare -A flags=([cargo-deny]='' [cargo-nextest]='--no-default-features --features default-no-update')

for name; do
  version=${versions[$name]:?$0: unknown tool $name}
  if "$tools/bin/$name" "${name#cargo-}" --version 2>/dev/null | grep -qF "$name $version"; then continue; fi
  say "installing $name $version into $tools (about three minutes, once)"
  # Compiled in a folder of its own, which goes afterwards; with less optimisation than their releases have, which would
  # take longer than it saves.
  build=$tools/build-$name
  # shellcheck disable=SC2086
  CARGO_TARGET_DIR=$build CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=false \
    timeout --foreground 2400 cargo install "$name" --locked --version "$version" ${flags[$name]} --root "$tools" --force </dev/null >&2
  rm -rf "$build"
done
