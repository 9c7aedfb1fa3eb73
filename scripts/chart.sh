#!/usr/bin/env bash
# chart.sh   Lints and renders the Helm chart with each of its examples of values, and validates the manifests against the schemas of
# Kubernetes 1.30 and of the Prometheus operator. Then starts a server with the flags that the chart gives it. RUNLOG_BIN names
# the command under test. Needs Go, which compiles the tools once (six minutes on two cores).
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

# The schemas of ServiceMonitor and PrometheusRule.
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0

scripts/tools.sh helm kubectl-validate
folder=$(timeout 300 go mod download -json "$operator" </dev/null | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
[ -n "$folder" ] || die "$operator cannot be downloaded"
export PATH=$tools/bin:$PATH RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
exec "$(tests/python/venv.sh)" tests/python/chart.py "$folder/example/prometheus-operator-crd"
