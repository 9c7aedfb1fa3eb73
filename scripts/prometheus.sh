#!/usr/bin/env bash
# prometheus.sh   Prints the folder of prometheus and promtool. On Debian and Ubuntu it downloads their package, once for all clones of
# this user, and does not install it: an installed package would start a service.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

unpacked=$cache/prometheus

if has prometheus && has promtool; then
  dirname "$(command -v prometheus)"
  exit
fi
if ! has apt-get || ! has dpkg; then die "prometheus and promtool are not on PATH"; fi
mkdir -p "$cache"
# Two runs may get here at the same time.
exec 9>"$unpacked.lock"
flock -w 600 9 || die "another process has been fetching Prometheus for 10 minutes"
if [ ! -x "$unpacked/usr/bin/promtool" ]; then
  say "fetching Debian's package of Prometheus into $unpacked"
  stage=$(mktemp -d "$cache/.prometheus.XXXXXX")
  trap 'rm -rf "$stage"' EXIT
  download() { (cd "$stage" && timeout 600 apt-get -q download prometheus && dpkg -x prometheus_*.deb unpacked) </dev/null >&2; }
  update() { [ "$(id -u)" -eq 0 ] && timeout 600 apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null >&2; }
  # The lists of packages can be missing or old.
  download || { update && download; } ||
    die "Prometheus cannot be downloaded; run apt-get update as root, or put prometheus and promtool on PATH"
  rm -rf "$unpacked"
  mv "$stage/unpacked" "$unpacked"
fi
echo "$unpacked/usr/bin"
