#!/usr/bin/env bash
# compose.sh up      starts the services of deploy/compose.yaml, and makes missing certificates and tokens
# compose.sh renew   the same with new certificates
# compose.sh down    stops them
# RUNLOG_COMPOSE=three means deploy/compose-three.yaml: three brokers, two servers and Prometheus.
# RUNLOG_COMPOSE_PROJECT, RUNLOG_PORT, RUNLOG_KAFKA_PORT and RUNLOG_SECRETS override the defaults, and for the three brokers RUNLOG_PORT_2
# and RUNLOG_PROMETHEUS_PORT.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

ready_seconds=90
case ${RUNLOG_COMPOSE:-one} in
  one)
    file=compose.yaml
    export RUNLOG_COMPOSE_PROJECT=${RUNLOG_COMPOSE_PROJECT:-runlog} RUNLOG_SECRETS=${RUNLOG_SECRETS:-$top/deploy/secrets}
    urls=("https://127.0.0.1:${RUNLOG_PORT:-7070}")
    ;;
  three)
    file=compose-three.yaml
    export RUNLOG_COMPOSE_PROJECT=${RUNLOG_COMPOSE_PROJECT:-runlog-three} RUNLOG_SECRETS=${RUNLOG_SECRETS:-$top/deploy/secrets/three}
    urls=("https://127.0.0.1:${RUNLOG_PORT:-7170}" "https://127.0.0.1:${RUNLOG_PORT_2:-7171}")
    ;;
  *) die "RUNLOG_COMPOSE is one or three" ;;
esac

# Docker Compose is a plug-in of the client, or in older versions a program.
if timeout 20 docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(--project-name "$RUNLOG_COMPOSE_PROJECT" --file "$top/deploy/$file")

# give SERVICE FILE...: replaces the files of a service's volume, each in one step, for the user that the services run as.
# Uses a container, because the current user may be another user, and may not change the owner of files.
give() {
  local volume=${RUNLOG_COMPOSE_PROJECT}_$1-secrets
  shift
  timeout 60 docker volume create "$volume" >/dev/null
  tar -C "$RUNLOG_SECRETS" -c "$@" | timeout 60 docker run --rm -i --network none --user 0:0 --read-only \
    --cap-drop ALL --cap-add CHOWN --cap-add DAC_OVERRIDE --cap-add FOWNER --security-opt no-new-privileges:true \
    --entrypoint /bin/sh -v "$volume:/secrets" "$RUNLOG_KAFKA_IMAGE" -c '
      set -eu
      chmod 700 /secrets
      rm -rf /secrets/.new && mkdir /secrets/.new && cd /secrets/.new
      tar x
      chmod 600 * && chown 1000:1000 * /secrets
      mv -f * .. && rmdir /secrets/.new' || die "the volume $volume was not filled"
}

# Prints the addresses, and the settings that clients need.
print_access() {
  say "Runlog answers at ${urls[*]}"
  say "  certificate authority   $RUNLOG_SECRETS/ca.pem"
  say "  token, for everything   $RUNLOG_SECRETS/token"
  if [ "$file" = compose-three.yaml ]; then
    say "and Prometheus at http://127.0.0.1:${RUNLOG_PROMETHEUS_PORT:-7190}/alerts. For the command and the clients:"
    say "  export RUNLOG_SERVER=${urls[0]} RUNLOG_CA=$RUNLOG_SECRETS/ca.pem RUNLOG_TOKEN_FILE=$RUNLOG_SECRETS/token"
    return
  fi
  say "and the broker at 127.0.0.1:${RUNLOG_KAFKA_PORT:-9092} with --kafka-properties $RUNLOG_SECRETS/kafka.properties. For the command and the clients:"
  say "  export RUNLOG_SERVER=${urls[0]} RUNLOG_CA=$RUNLOG_SECRETS/ca.pem RUNLOG_TOKEN_FILE=$RUNLOG_SECRETS/token"
}

# The token is given to curl in a file: a command line is readable by every user.
ready() {
  local url
  for url in "${urls[@]}"; do ready_at "$url" || return 1; done
}
ready_at() {
  printf 'header = "Authorization: Bearer %s"\n' "$(cat "$RUNLOG_SECRETS/token")" |
    curl -fs -m 5 -o /dev/null --noproxy '*' --cacert "$RUNLOG_SECRETS/ca.pem" -K - "$1/readyz"
}

up() {
  local changed
  changed=$("$top/scripts/secrets.sh" "$@")
  give kafka ca.pem broker.pem
  give runlog ca.pem runlog.pem runlog.key server.properties tokens.json health-token
  # Both read their client certificates for the broker only when they start.
  if [ "$changed" = certificates ]; then timeout 120 "${compose[@]}" stop </dev/null; fi
  timeout 300 "${compose[@]}" up -d </dev/null
  for ((i = 0; i < ready_seconds; i++)); do
    if ready; then
      print_access
      return
    fi
    sleep 1
  done
  timeout 60 "${compose[@]}" logs --tail 30 </dev/null >&2 || true
  die "Runlog did not answer at ${urls[*]} after $ready_seconds s; the services' last lines are above"
}

case ${1:-} in
  up) up ;;
  renew) up renew ;;
  down) timeout 120 "${compose[@]}" down </dev/null ;;
  *) echo "usage: $0 up|renew|down" >&2; exit 2 ;;
esac
