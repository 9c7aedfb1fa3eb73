#!/usr/bin/env bash
# build.sh          compiles the release build of the command and leaves it in ./bin
# build.sh tested   leaves the command that scripts/test.sh compiled, with debug assertions, in $CARGO_TARGET_DIR/tested
# Each folder also gets RocksDB's shared library if scripts/rocksdb.sh fetched one, so that the folder can be copied elsewhere.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

case ${1:-release} in
  release) built=$CARGO_TARGET_DIR/release/runlog folder=bin ;;
  tested) built=$CARGO_TARGET_DIR/debug/runlog folder=$tested ;;
  *) echo "usage: $0 [tested]" >&2; exit 2 ;;
esac
if [ "$folder" = bin ]; then timeout --foreground 5400 cargo build --release --locked --package runlog-cli </dev/null; fi

# Renames the file into place: no process runs a partial file, and a running process keeps the old file.
place() {
  if ! cmp -s "$1" "$folder/$2"; then
    cp "$1" "$folder/.$2.$$"
    mv -f "$folder/.$2.$$" "$folder/$2"
  fi
}

mkdir -p "$folder"
needed=$(readelf --dynamic "$built" | sed -n 's/.*NEEDED.*\[\(librocksdb\.so\..*\)\]$/\1/p')
for library in "$folder"/librocksdb.so.*; do
  if [ -e "$library" ] && [ "${library##*/}" != "$needed" ]; then rm "$library"; fi
done
# The command and the library contain different versions of LZ4, Zstandard and zlib. A call from one into the other
# would compress users' data with a mix of two versions.
names() { nm --dynamic --without-symbol-versions "$@" | awk '{ print $NF }' | sort -u; }
compressor='^(LZ4|ZSTD|ZDICT|XXH|HUF|FSE|HIST|BZ2|snappy|(un)?compress|(in|de)flate|adler32|crc32)'
if [ -n "$needed" ]; then
  library=.cargo/rocksdb/${needed#librocksdb.so.}/$needed
  shared=$(comm -12 <(names "$built") <(names --defined-only "$library") | grep -E "$compressor" || true)
  [ -z "$shared" ] || die "runlog and $library share compression functions; build with ROCKSDB=source: ${shared//$'\n'/ }"
  place "$library" "$needed"
fi
place "$built" runlog
