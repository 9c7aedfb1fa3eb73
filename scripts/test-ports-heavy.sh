#!/usr/bin/env bash
# The ports that are a workspace of their own, with a lock and a target folder of their own:
# their SDK has ten times as many dependencies as Runlog. On Kafka too if Docker is available.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

export RUNLOG_BIN=$top/bin/runlog
[ -x "$RUNLOG_BIN" ] || die "bin/runlog is missing; make build makes it"

manifest=ports/a3s-code-core/Cargo.toml
cargo=(timeout --foreground 5400 cargo)
version() { grep -A1 '^name = "librocksdb-sys"' "$1" | tail -1; }
[ "$(version Cargo.lock)" = "$(version "${manifest%.toml}.lock")" ] || die "the two lock files have different versions of librocksdb-sys"
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/heavy
if ! compgen -G "$CARGO_TARGET_DIR/debug/deps/liba3s_code_core-*.rlib" >/dev/null; then
  say "a3s-code-core and its 480 crates are compiled: 10 to 25 minutes and 2 GB in $CARGO_TARGET_DIR, once"
fi

"${cargo[@]}" fmt --manifest-path "$manifest" --check </dev/null
# Lints while it compiles: `cargo clippy` would check all 480 crates a second time.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
has clippy-driver || die "clippy is missing. With rustup: rustup component add clippy"

scripts/tools.sh cargo-deny
timeout --foreground 600 "$tools/bin/cargo-deny" --manifest-path "$manifest" --locked --all-features check bans licenses sources </dev/null

without=()
ours=
if [ -z "${RUNLOG_BROKERS:-}" ]; then
  if scripts/docker.sh && deploy/kafka/build.sh; then
    # Removes the broker afterwards only if this script started it.
    [ -n "$(docker ps -q -f name='^runlog-kafka$')" ] || ours=yes
    RUNLOG_BROKERS=$(scripts/kafka.sh up | sed -n 's/^bootstrap=//p')
    export RUNLOG_BROKERS
  else
    say "there is no Docker: the tests on Kafka do not run"
    without=(--skip kafka)
  fi
fi
finish() { if [ -n "$ours" ]; then scripts/kafka.sh down; fi; }
trap finish EXIT

# With the features of most hosts, then with every way to a journal.
"${cargo[@]}" build --locked --manifest-path "$manifest" --lib </dev/null
"${cargo[@]}" test --locked --manifest-path "$manifest" --all-features -- "${without[@]}" </dev/null
