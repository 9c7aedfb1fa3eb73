#!/usr/bin/env bash
# Prepares RocksDB for cargo. RocksDB's own release on Maven Central (org.rocksdb:rocksdbjni) holds a shared library that
# exports the whole C API; linking it saves ten minutes of C++. After this script, plain cargo commands use it too.
#   .cargo/rocksdb/VERSION/librocksdb.so.VERSION   the library of the release, unchanged
#   .cargo/rocksdb/VERSION/librocksdb.so           for the linker: only the names rocksdb_* of that library.
#       The library also exports its own zlib, LZ4 and ZSTD. A linker that saw them would bind librdkafka's calls to them.
#   .cargo/rocksdb.toml                            names the folder for cargo; .cargo/config.toml includes it
# ROCKSDB=source compiles RocksDB instead, as does a machine without Maven or without a library in the release.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

config=.cargo/rocksdb.toml
version=$(sed -n '/^name = "librocksdb-sys"$/{n;s/^version = ".*+\(.*\)"$/\1/p}' Cargo.lock)
[ -n "$version" ] || die "Cargo.lock names no version of librocksdb-sys"

from_source() {
  say "RocksDB $version will be compiled from source, because $1: about 10 minutes on two cores, once per profile"
  rm -f "$config"
  exit 0
}

if [ "${ROCKSDB:-release}" = source ]; then from_source "ROCKSDB=source"; fi
host=$(rustc -vV </dev/null | sed -n 's/^host: //p')
case $host in
  x86_64-unknown-linux-gnu) file=librocksdbjni-linux64.so ;;
  aarch64-unknown-linux-gnu) file=librocksdbjni-linux-aarch64.so ;;
  *) from_source "the release has no library for $host" ;;
esac

folder=.cargo/rocksdb/$version
library=$folder/librocksdb.so.$version
if [ ! -e "$library" ] || [ ! -e "$folder/librocksdb.so" ]; then
  has mvn || from_source "Maven (mvn) is not installed"
  sha256=$(awk -v v="$version" -v f="$file" '$2 == v && $3 == f { print $1 }' scripts/rocksdb.sha256)
  [ -n "$sha256" ] || die "scripts/rocksdb.sha256 has no checksum of $file $version. Add it, or compile with ROCKSDB=source."
  say "fetching RocksDB $version (92 MB) with Maven"
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' EXIT
  if ! printed=$(timeout 900 env --chdir="$stage" mvn -B -q -ntp dependency:unpack -Dartifact="org.rocksdb:rocksdbjni:$version" \
    -Dmdep.unpack.includes="$file" -DoutputDirectory="$stage" </dev/null 2>&1); then
    die "Maven could not fetch org.rocksdb:rocksdbjni:$version. ROCKSDB=source compiles it instead. Maven printed: $printed"
  fi
  echo "$sha256  $stage/$file" | sha256sum --check --quiet - || die "$file $version does not have the pinned checksum"
  nm --dynamic --defined-only "$stage/$file" | awk '$3 ~ /^rocksdb_/ {
    printf ".globl %s\n.type %s, %%function\n%s:\n", $3, $3, $3
  }' >"$stage/names.s"
  cc -shared -nostdlib -Wl,-soname,"librocksdb.so.$version" -o "$stage/librocksdb.so" "$stage/names.s"
  mkdir -p "$folder"
  cp "$stage/$file" "$library.$$"
  cp "$stage/librocksdb.so" "$folder/librocksdb.so.$$"
  mv "$library.$$" "$library"
  mv "$folder/librocksdb.so.$$" "$folder/librocksdb.so"
fi

written="# Written by scripts/rocksdb.sh.
[env]
ROCKSDB_LIB_DIR = { value = \"$folder\", relative = true }
RUNLOG_ROCKSDB_VERSION = \"$version\""
# cargo recompiles the crates that read a changed file.
if [ "$(cat "$config" 2>/dev/null)" != "$written" ]; then echo "$written" >"$config"; fi
