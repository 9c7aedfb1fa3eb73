#!/usr/bin/env bash
# monitoring.sh         tests the alerts with promtool, then the alerts and the dashboard with a real Prometheus that scrapes a server
# monitoring.sh rules   only the former, which needs no compiled command
# RUNLOG_BIN names the command under test. Takes a quarter of a minute.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

case ${1:-} in rules | '') ;; *) echo "usage: $0 [rules]" >&2; exit 2 ;; esac
export RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
programs=$(scripts/prometheus.sh)
"$programs/promtool" check rules deploy/prometheus/rules.yaml
"$programs/promtool" test rules deploy/prometheus/rules_test.yaml
"$programs/promtool" check config --syntax-only deploy/prometheus/prometheus.yaml
if [ "${1:-}" = rules ]; then exit; fi
exec python3 tests/python/monitoring.py "$programs/prometheus"
