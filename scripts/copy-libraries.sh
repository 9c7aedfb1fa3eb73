#!/usr/bin/env bash
# copy-libraries.sh ROOT FILE...   Copies the shared libraries that the files need into the same places under ROOT,
# so that an image made FROM scratch can run them.
set -euo pipefail

root=$1
shift
# Libraries under ROOT are copied with it. A missing library belongs to a part (a window, a sound)
# that no server loads; files for other machines make ldd fail, and need nothing.
{ ldd "$@" 2>/dev/null || true; } | grep -oE '(=> )?/[^ ]+ \(0x' | sed -E 's/^(=> )?//; s/ \(0x$//' | sort -u |
  while read -r library; do
    case $library in "$root"/*) continue ;; esac
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
