#!/usr/bin/env bash
# kafka.sh up     starts one broker for this machine; the last line on stdout is bootstrap=HOST:PORT
# kafka.sh down   removes it and its data
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

name=runlog-kafka
ready_seconds=60

# Prints the address that the broker was started with, which it advertises to clients.
bootstrap() { timeout 60 docker inspect -f '{{index .Config.Labels "org.runlog.bootstrap"}}' "$name" 2>/dev/null; }
running() { [ "$(timeout 60 docker inspect -f '{{.State.Running}}' "$name" 2>/dev/null)" = true ]; }
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
down() { timeout 60 docker rm -f -v "$name" >/dev/null 2>&1 || true; }

# Clients outside the container connect to the port that Docker maps, and the broker must advertise the same port.
# So the port is chosen first. Inside the container, the broker uses a listener of its own.
start() {
  local address=127.0.0.1:$1
  timeout 120 docker run -d --name "$name" --label "org.runlog.bootstrap=$address" -p "$address:9092" \
    -e KAFKA_NODE_ID=1 \
    -e KAFKA_PROCESS_ROLES=broker,controller \
    -e KAFKA_LISTENERS=EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093 \
    -e KAFKA_ADVERTISED_LISTENERS="EXTERNAL://$address,INTERNAL://localhost:19092" \
    -e KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT \
    -e KAFKA_INTER_BROKER_LISTENER_NAME=INTERNAL \
    -e KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER \
    -e KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093 \
    -e KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 \
    -e KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1 \
    -e KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1 \
    -e KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 \
    "$RUNLOG_KAFKA_IMAGE" >/dev/null
}

# Reads only the lines since the container's last start: a restarted container also has the line of its earlier start.
wait_until_ready() {
  local since
  since=$(timeout 60 docker inspect -f '{{.State.StartedAt}}' "$name")
  for ((i = 0; i < ready_seconds * 4; i++)); do
    case $(timeout 60 docker logs --since "$since" "$name" 2>&1) in *'Kafka Server started'*) return ;; esac
    if ! running; then break; fi
    sleep 0.25
  done
  timeout 60 docker logs --tail 30 "$name" >&2 || true
  down
  die "the broker was not ready after $ready_seconds s; its last lines are above"
}

up() {
  if running; then
    say "the broker is already running"
  else
    down
    local port started=
    for port in ${RUNLOG_KAFKA_PORT:-$(seq 9092 9111)}; do
      if taken "$port"; then continue; fi
      if start "$port"; then started=yes; break; fi
      # Another process has taken the port meanwhile. Docker has created the container anyway.
      down
    done
    [ -n "$started" ] || die "no free port for the broker; set RUNLOG_KAFKA_PORT to a free port"
  fi
  wait_until_ready
  echo "bootstrap=$(bootstrap)"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  *) echo "usage: $0 up|down" >&2; exit 2 ;;
esac
