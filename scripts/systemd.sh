#!/usr/bin/env bash
# systemd.sh   Checks deploy/systemd/runlog.service with systemd's tools, and the system calls of a server against the unit's
# filter. RUNLOG_BIN names the command under test.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

scripts/setup.sh systemd
export RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
exec python3 tests/python/systemd.py
