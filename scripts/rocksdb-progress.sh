#!/usr/bin/env bash
# Where RocksDB is not compiled yet:
#   rocksdb-progress.sh announce     says what that takes
#   rocksdb-progress.sh follow PID   says once a minute how far it is, since cargo is silent about it; ends with the
#                                    process PID or when the library is there
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

builds=$CARGO_TARGET_DIR/debug/build
files=343 # in the version that is compiled now; only for the eye
free_gib_min=5

# The heavy workspace does not compile it.
case $CARGO_TARGET_DIR in *-heavy) exit 0 ;; esac

there() { compgen -G "$builds/librocksdb-sys-*/out/librocksdb.a" >/dev/null; }

announce() {
  local free_gib
  say "the first build compiles RocksDB's C++: 20 to 35 minutes on two cores and 3 GB in $CARGO_TARGET_DIR, once"
  free_gib=$(df -Pk "$CARGO_TARGET_DIR" | awk 'NR == 2 { print int($4 / 1048576) }')
  if [ "$free_gib" -lt "$free_gib_min" ]; then say "only $free_gib GiB are free there"; fi
}

follow() {
  local step compiled before=0
  # In short steps, because the end of the build is waited for by whoever reads our output.
  for ((step = 1; ; step++)); do
    sleep 2
    if ! kill -0 "$1" 2>/dev/null || there; then return; fi
    if [ $((step % 30)) -ne 0 ]; then continue; fi
    compiled=$(find "$builds" -path '*/librocksdb-sys-*/out/*' -name '*.o' 2>/dev/null | wc -l)
    if [ "$compiled" -gt "$before" ]; then say "RocksDB: $compiled of about $files files compiled"; fi
    before=$compiled
  done
}

if there; then exit 0; fi
case ${1:-} in
  announce) announce ;;
  follow) follow "$2" ;;
  *) echo "usage: $0 announce | follow PID" >&2; exit 2 ;;
esac
