#!/usr/bin/env bash
# Compiles the release build of the command and leaves it as ./bin/runlog, with RocksDB's shared library beside it where
# scripts/rocksdb.sh fetched one: the folder can be copied elsewhere.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

timeout --foreground 5400 cargo build --release --locked --package runlog-cli </dev/null

# Renamed into place, so that nobody runs half a file and a running process keeps its own.
place() {
  if ! cmp -s "$1" "bin/$2"; then
    cp "$1" "bin/.$2.$$"
    mv -f "bin/.$2.$$" "bin/$2"
  fi
}

mkdir -p bin
needed=$(readelf --dynamic "$CARGO_TARGET_DIR/release/runlog" | sed -n 's/.*NEEDED.*\[\(librocksdb\.so\..*\)\]$/\1/p')
for library in bin/librocksdb.so.*; do
  if [ -e "$library" ] && [ "${library#bin/}" != "$needed" ]; then rm "$library"; fi
done
# The command and the library hold LZ4, Zstandard and zlib in different versions. A function that one took from the other
# would mix two versions while it compresses users' data.
names() { nm --dynamic --without-symbol-versions "$@" | awk '{ print $NF }' | sort -u; }
compressor='^(LZ4|ZSTD|ZDICT|XXH|HUF|FSE|HIST|BZ2|snappy|(un)?compress|(in|de)flate|adler32|crc32)'
if [ -n "$needed" ]; then
  library=.cargo/rocksdb/${needed#librocksdb.so.}/$needed
  shared=$(comm -12 <(names "$CARGO_TARGET_DIR/release/runlog") <(names --defined-only "$library") | grep -E "$compressor" || true)
  [ -z "$shared" ] || die "runlog and $library share compression functions; build with ROCKSDB=source: ${shared//$'\n'/ }"
  place "$library" "$needed"
fi
place "$CARGO_TARGET_DIR/release/runlog" runlog
