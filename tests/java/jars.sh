#!/usr/bin/env bash
# Fetches the jars of pom.xml into the user's cache folder, once, and prints that folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

recipe=$(sha256sum "$here/pom.xml" | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/runlog/java-$recipe
mkdir -p "$(dirname "$folder")"

# Two test runs may come here at once. What a killed one left half made is not marked as ready.
exec 9>"$folder.lock"
flock -w 600 9
if [ ! -e "$folder/ready" ]; then
  rm -rf "$folder"
  mkdir "$folder"
  # Maven leaves its own folder target/ beside the pom, so it gets a copy.
  cp "$here/pom.xml" "$folder/pom.xml"
  timeout 400 mvn -B -q -ntp -f "$folder/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$folder/jars" </dev/null >&2
  touch "$folder/ready"
fi
echo "$folder/jars"
