#!/usr/bin/env bash
# Ends what a test run leaves behind: its processes, known by RUNLOG_TEST_OWNER=PID in their environment, and its
# containers, known by the label org.runlog.test=PID, and its disks, mounted as runlog-test-PID. PID is that of
# scripts/test.sh.
#   reap.sh watch PID [MAKE]   waits until PID ends, or the process MAKE that started it, however they end; then as `now`
#   reap.sh now PID            ends them
#   reap.sh leftovers          removes the containers and disks of all runs that are over
set -euo pipefail

label=org.runlog.test

# The time at which a process started, which tells it from a later one with the same id; empty when it is gone.
started() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  # The fields after the name in parentheses, which may contain blanks itself. A zombie is gone, too.
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  if [ "$1" != Z ]; then echo "${20}"; fi
}

processes() {
  local folder
  for folder in /proc/[0-9]*; do
    if grep -qzx "RUNLOG_TEST_OWNER=$1" "$folder/environ" 2>/dev/null; then echo "${folder#/proc/}"; fi
  done
}

end_processes() {
  local signal pid
  for signal in TERM KILL; do
    for pid in $(processes "$1"); do kill "-$signal" "$pid" 2>/dev/null || true; done
    for _ in {1..25}; do
      if [ -z "$(processes "$1")" ]; then return; fi
      sleep 0.2
    done
  done
}

remove_containers() {
  local ids
  # Several times: Docker may still be working on the last request of a killed process.
  for _ in 1 2 3 4; do
    ids=$(timeout 30 docker ps -aq --filter "label=$label=$1" 2>/dev/null) || return 0
    # shellcheck disable=SC2086
    if [ -n "$ids" ]; then timeout 60 docker rm -f -v $ids >/dev/null 2>&1 || true; fi
    sleep 0.5
  done
}

# Owner and folder of every mounted disk.
disks() { awk '$1 ~ /^runlog-test-/ { print substr($1, 13), $2 }' /proc/mounts; }

unmount_disks() {
  local owner folder
  disks | while read -r owner folder; do
    if [ "$owner" = "$1" ]; then umount -l "$folder" 2>/dev/null || true; fi
  done
}

reap() {
  end_processes "$1"
  unmount_disks "$1"
  remove_containers "$1"
}

watch() {
  local owner=$1 make=${2:-} owner_start make_start=
  owner_start=$(started "$owner")
  if [ -n "$make" ]; then make_start=$(started "$make"); fi
  while [ -n "$owner_start" ] && [ "$(started "$owner")" = "$owner_start" ]; do
    if [ -n "$make" ] && [ "$(started "$make")" != "$make_start" ]; then
      kill -TERM "$owner" 2>/dev/null || true
      for _ in {1..50}; do
        if [ "$(started "$owner")" != "$owner_start" ]; then break; fi
        sleep 0.2
      done
      if [ "$(started "$owner")" = "$owner_start" ]; then kill -KILL "$owner" 2>/dev/null || true; fi
      break
    fi
    sleep 0.5
  done
  reap "$owner"
}

leftovers() {
  local id owner
  disks | while read -r owner _; do
    if [ -z "$(started "$owner")" ]; then unmount_disks "$owner"; fi
  done
  timeout 30 docker ps -a --filter "label=$label" --format "{{.ID}} {{.Label \"$label\"}}" |
    while read -r id owner; do
      if [ -z "$(started "$owner")" ]; then
        echo "runlog: removing the container $id, left behind by a test run that is over" >&2
        timeout 60 docker rm -f -v "$id" >/dev/null 2>&1 </dev/null || true
      fi
    done
}

case ${1:-} in
  watch) watch "$2" "${3:-}" ;;
  now) reap "$2" ;;
  leftovers) leftovers ;;
  *) echo "usage: $0 watch PID [MAKE] | now PID | leftovers" >&2; exit 2 ;;
esac
