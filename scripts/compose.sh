#!/usr/bin/env bash
# compose.sh up|down   starts or stops the services of deploy/compose.yaml
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

ready_seconds=90
url=http://127.0.0.1:${RUNLOG_PORT:-7070}

# As a plug-in of the client, or the former program of its own.
if timeout 20 docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(--project-name runlog --file "$top/deploy/compose.yaml")

up() {
  timeout 300 "${compose[@]}" up -d </dev/null
  for ((i = 0; i < ready_seconds; i++)); do
    if curl -fs -m 5 -o /dev/null "$url/readyz"; then
      say "Runlog answers at $url"
      return
    fi
    sleep 1
  done
  timeout 60 "${compose[@]}" logs --tail 30 </dev/null >&2 || true
  die "Runlog did not answer at $url after $ready_seconds s; the services' last lines are above"
}

case ${1:-} in
  up) up ;;
  down) timeout 120 "${compose[@]}" down </dev/null ;;
  *) echo "usage: $0 up|down" >&2; exit 2 ;;
esac
