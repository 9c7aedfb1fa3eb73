#!/usr/bin/env bash
# monitoring.sh         tests the alerts with promtool, then the alerts and the dashboard with a real Prometheus that scrapes a server
# monitoring.sh rules   only the former, which needs no compiled command
# RUNLOG_BIN names the command under test. Takes a quarter of a minute. On Debian and Ubuntu it downloads their package of
# Prometheus, once for all clones of this user, and does not install it: an installed package would start a service.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

case ${1:-} in rules | '') ;; *) echo "usage: $0 [rules]" >&2; exit 2 ;; esac
export RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
unpacked=$cache/prometheus

# Two runs may get here at the same time.
fetch() {
  mkdir -p "$cache"
  exec 9>"$unpacked.lock"
  flock -w 600 9 || die "another process has been fetching Prometheus for 10 minutes"
  if [ -x "$unpacked/usr/bin/promtool" ]; then return; fi
  say "fetching Debian's package of Prometheus into $unpacked"
  local stage
  stage=$(mktemp -d "$cache/.prometheus.XXXXXX")
  # A new machine has no lists of packages yet.
  if [ -z "$(apt-cache madison prometheus 2>/dev/null)" ] && [ "$(id -u)" -eq 0 ]; then
    timeout 600 apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null >&2
  fi
  (cd "$stage" && timeout 600 apt-get -q download prometheus && dpkg -x prometheus_*.deb unpacked) </dev/null >&2 ||
    { rm -rf "$stage"; die "Prometheus cannot be downloaded; run apt-get update as root, or put prometheus and promtool on PATH"; }
  rm -rf "$unpacked"
  mv "$stage/unpacked" "$unpacked"
  rm -rf "$stage"
}

if ! has prometheus || ! has promtool; then
  if ! has apt-get || ! has dpkg; then die "prometheus and promtool are not on PATH"; fi
  fetch
  PATH=$unpacked/usr/bin:$PATH
fi

promtool check rules deploy/prometheus/rules.yaml
promtool test rules deploy/prometheus/rules_test.yaml
if [ "${1:-}" = rules ]; then exit; fi
exec python3 tests/python/monitoring.py "$(command -v prometheus)"
