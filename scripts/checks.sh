#!/usr/bin/env bash
# checks.sh           format, lints, documentation, and the licences and sources of the dependencies
# checks.sh nightly   the lints with all features, with each port alone, and of the benchmarks
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

for component in fmt clippy; do
  cargo "$component" --version >/dev/null 2>&1 || die "cargo $component is missing. With rustup: rustup component add rustfmt clippy"
done

step() {
  local begun=$SECONDS
  say "check: $*"
  timeout --foreground 5400 "$@" </dev/null
  if [ $((SECONDS - begun)) -ge 5 ]; then say "check: took $((SECONDS - begun)) s"; fi
}

if [ "${1:-}" = nightly ]; then
  step cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
  # A user of one port does not compile the others.
  for port in agent-sdk-core bob-core codetether observability; do
    step cargo clippy --locked --package runlog-ports --features "$port" -- -D warnings
  done
  exit
fi

step cargo fmt --all --check
for other in schemas/fuzz projector/fuzz; do step cargo fmt --manifest-path "$other/Cargo.toml" --check; done
# Other make targets compile these workspaces; a stale lock file must be found here.
for other in schemas/fuzz projector/fuzz ports/a3s-code-core; do
  step cargo update --workspace --locked --manifest-path "$other/Cargo.toml"
done
step cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' step cargo doc --locked --no-deps
step scripts/model-alone.sh

scripts/tools.sh cargo-deny
# The advisories are not checked: their database is not reachable from everywhere.
step "$tools/bin/cargo-deny" --all-features --workspace check bans licenses sources
# Vectors for other languages, by rules that are written down a second time.
has python3 || die "python3 is missing; scripts/setup.sh test installs it"
step python3 tests/python/canonical.py
# The crates that other programs depend on can be packaged. `make packages` compiles them from their packages, too.
step scripts/packages.py
# The Python client: format, lints, types.
step scripts/python.sh lint
# The page, without a browser.
if has_node; then step scripts/page.sh unit; else say "check: without Node 20.19 and npm, the page's functions are not tested"; fi
# The alerts and the dashboard, with a real Prometheus.
if ! has promtool && ! has apt-get; then
  say "check: without promtool, the alerts are not tested"
elif [ -x "$tested/runlog" ]; then
  RUNLOG_BIN=$tested/runlog step scripts/monitoring.sh
else
  say "check: without a compiled command (make compile), the dashboard is not tested"
  step scripts/monitoring.sh rules
fi
# Links in the documents, and documents that the code names.
step scripts/links.py
say "all checks passed"
