#!/usr/bin/env bash
# jars.sh [FOLDER]   fetches the jars of FOLDER/pom.xml (default: this folder's) into the user's cache folder, once,
# and prints their path. The fetched files must match FOLDER/jars.sha256, if it exists.
set -euo pipefail
here=$(cd "${1:-$(dirname "$0")}" && pwd)
pinned=$here/jars.sha256
if [ ! -e "$pinned" ]; then pinned=/dev/null; fi

recipe=$(cat "$here/pom.xml" "$pinned" | sha256sum | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/runlog/java-$recipe
mkdir -p "$(dirname "$folder")"

# Two test runs may call this at once. The incomplete folder of a killed run is not marked as ready.
exec 9>"$folder.lock"
flock -w 600 9
if [ ! -e "$folder/ready" ]; then
  rm -rf "$folder"
  mkdir "$folder"
  # Maven leaves its own folder target/ beside the pom, so it gets a copy.
  cp "$here/pom.xml" "$folder/pom.xml"
  timeout 400 mvn -B -q -ntp -f "$folder/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$folder/jars" </dev/null >&2
  if [ "$pinned" != /dev/null ]; then
    (cd "$folder/jars" && LC_ALL=C sha256sum -- *) | diff "$pinned" - >&2 || {
      echo "the jars of $here/pom.xml differ from $pinned (<: pinned, >: fetched)" >&2
      exit 1
    }
  fi
  touch "$folder/ready"
fi
echo "$folder/jars"
