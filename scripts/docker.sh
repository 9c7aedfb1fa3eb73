#!/usr/bin/env bash
# Ensures that a Docker daemon answers. Uses a running daemon; otherwise, as root, starts a daemon, which keeps running.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

ready_seconds=60
state=/var/lib/runlog-docker
log=$state/dockerd.log

answers() { timeout 20 docker info >/dev/null 2>&1; }

has docker || die "docker is not installed; scripts/setup.sh test installs it on Debian and Ubuntu"
if answers; then exit 0; fi

# If Docker is at another address than this machine's socket, starting a daemon here would not help.
if [ -n "${DOCKER_HOST:-}" ] && [ "$DOCKER_HOST" != unix:///var/run/docker.sock ]; then
  die "no Docker daemon answers at DOCKER_HOST=$DOCKER_HOST"
fi
if [ "$(id -u)" -ne 0 ]; then
  die "no Docker daemon answers. Start it (sudo systemctl start docker) and be allowed to use it" \
    "(sudo usermod -aG docker $(id -un), then log in again), or run this as root."
fi
has dockerd || die "no Docker daemon answers and dockerd is not installed; scripts/setup.sh test installs it"

mkdir -p "$state"
# Two scripts that find no daemon at the same time would both start a daemon.
exec 9>"$state/start.lock"
flock -w 120 9 || die "another process has been starting Docker's daemon for two minutes"
if answers; then exit 0; fi

if [ -d /run/systemd/system ]; then
  say "starting Docker's daemon with systemd"
  systemctl start docker </dev/null >&2
else
  say "starting Docker's daemon (log: $log)"
  # The daemon outlives this script, so it must hold neither the lock nor a pipe that the caller reads to its end.
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi
    done
    exec env -i PATH="$PATH" HOME="$HOME" setsid dockerd \
      --data-root "$state/data" --exec-root /run/runlog-docker --pidfile /run/runlog-docker.pid \
      --host unix:///var/run/docker.sock </dev/null >>"$log" 2>&1
  ) &
fi

for ((i = 0; i < ready_seconds * 2; i++)); do
  if answers; then
    say "Docker's daemon is up"
    exit 0
  fi
  sleep 0.5
done
tail -n 20 "$log" >&2 || true
die "Docker's daemon was not up after $ready_seconds s"
