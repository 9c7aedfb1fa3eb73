#!/usr/bin/env bash
# Makes a Python environment with requirements.txt under the user's cache folder, once, and prints its interpreter.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

version=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
recipe=$({ echo "$version"; cat "$here/requirements.txt"; } | sha256sum | cut -c 1-16)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/runlog/python-$recipe
mkdir -p "$(dirname "$folder")"

# Two test runs may get here at the same time. An environment that a killed run left incomplete is not marked as ready.
exec 9>"$folder.lock"
flock -w 600 9
if [ ! -e "$folder/ready" ]; then
  rm -rf "$folder"
  {
    timeout 120 python3 -m venv "$folder"
    timeout 400 "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
  } </dev/null >&2
  touch "$folder/ready"
fi
echo "$folder/bin/python"
