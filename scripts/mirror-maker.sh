#!/usr/bin/env bash
# mirror-maker.sh [KILLS]   mirrors a journal with the real MirrorMaker 2, kills MirrorMaker while it copies (3 times), compares home and
# mirror, and lets the mirror take over from a lost home. Takes three minutes. Needs a JDK and Maven, and no Docker. RUNLOG_BIN names
# the command under test, by default bin/runlog.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

jars=$(tests/java/jars.sh tests/java/mirror)
python3 tests/python/mirror_maker.py "${RUNLOG_BIN:-bin/runlog}" "$jars" "${1:-3}"
