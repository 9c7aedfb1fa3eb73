#!/usr/bin/env bash
# python.sh test [ARGUMENT...]   runs the tests of the Python client with bin/runlog, or $RUNLOG_BIN; arguments go to pytest.
#                                `-m ""` adds the tests that are marked nightly
# python.sh install              makes the environment and nothing else
# python.sh lint                 checks its format, lints and types
# python.sh run FILE [ARG...]    runs a program with the client, as an example
# python.sh peer FILE [ARG...]   runs a program of docs/compare.md, in an environment of its own from tests/peers.txt
# python.sh kills [KILLS]        kills agents and the server at random while they book at the demo's desk, 1,000 times
# python.sh fleet-kills [KILLS]  as kills, with agents in Python, Rust and TypeScript in equal parts, which take over from each other
# python.sh graph-kills [KILLS]  kills the workers of a LangGraph graph with tools and interrupts at random, 200 times
# python.sh trials [TRIALS]      lets two workers write a LangGraph thread at once, and with skewed clocks, 1,000 times each;
#                                --brokers HOST:PORT or --containers: through two servers on Kafka
# python.sh savers [TURNS]       compares LangGraph's checkpointers: conformance, latency and bytes at 500 turns
# python.sh saver-latency [ARG..] compares them at equal durability, as `make bench` does; prints JSON
# python.sh wheels [FOLDER]      builds the wheels of the client and of the command in bin/, the same bytes each time
# python.sh lock                 writes requirements.txt, tests/peers.txt and tests/values.txt with the versions that the .in files
#                                allow now
# Everything is in an environment in the user's cache folder, made once from requirements.txt, whose hashes are checked.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
client=$top/clients/python

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "the Python client needs Python 3.11 or newer"

# Prints an interpreter of another version, 3.11 or newer, if this machine has one. RUNLOG_SECOND_PYTHON names it.
second_python() {
  local found
  for found in ${RUNLOG_SECOND_PYTHON:+"$RUNLOG_SECOND_PYTHON"} python3.14 python3.13 python3.12 python3.11 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9].*/bin/python3; do
    if "$found" -c "import sys, venv; v = sys.version_info[:2]; sys.exit(v < (3, 11) or '%d.%d' % v == '$1')" 2>/dev/null; then
      echo "$found"
      return
    fi
  done
}

# environment NAME FILE [PYTHON]   Prints the interpreter of the environment with the packages of a file, made by PYTHON.
environment() {
  local recipe folder version python=${3:-python3}
  version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
  recipe=$({ echo "$version"; cat "$client/$2"; } | sha256sum | cut -c 1-16)
  folder=$cache/python-$1-$recipe
  mkdir -p "$cache"
  # Two runs may get here at the same time. An environment that a killed run left incomplete is not marked as ready.
  exec 9>"$folder.lock"
  flock -w 600 9
  if [ ! -e "$folder/ready" ]; then
    rm -rf "$folder"
    {
      timeout 120 "$python" -m venv "$folder"
      timeout 500 "$folder/bin/python" -m pip install -q --disable-pip-version-check --require-hashes \
        -r "$client/$2"
    } </dev/null >&2
    touch "$folder/ready"
  fi
  exec 9>&-
  echo "$folder/bin/python"
}

mode=${1:-test}
shift || true
if [ "$mode" = lock ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  python3 -m venv "$folder"
  "$folder/bin/pip" install -q pip-tools
  cd "$client"
  for file in requirements tests/peers tests/values; do
    "$folder/bin/pip-compile" -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
      --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o "$file.txt" "$file.in"
  done
  exit
fi

export PYTHONDONTWRITEBYTECODE=1
if [ "$mode" = peer ]; then
  python=$(environment peers tests/peers.txt)
  exec "$python" "$@"
fi
python=$(environment client requirements.txt)

# Builds the wheel of a project into a folder. Hatchling writes files in order, and each with the time of the commit.
wheel() {
  local time
  time=$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 1580601600)
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$time} timeout 120 "$python" -m pip wheel -q --disable-pip-version-check --no-deps \
    --no-build-isolation --no-cache-dir --wheel-dir "$2" "$1" </dev/null >&2
}

case $mode in
  install) ;;
  lint)
    for project in "$client" "$client-server"; do
      cd "$project"
      "$python" -m ruff format --no-cache --check . >&2
      "$python" -m ruff check --no-cache . >&2
      "$(dirname "$python")/basedpyright" --pythonpath "$python" >&2
    done
    ;;
  test)
    # The package as a user installs it, not the source folder.
    installed=$(mktemp -d)
    trap 'rm -rf "$installed"' EXIT
    "$python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --target "$installed" "$client" >&2
    # Values must have the same fingerprints in two versions. Without a second version that test is skipped by name.
    second=$(second_python "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')")
    if [ -n "$second" ]; then
      second=$(environment values tests/values.txt "$second") || second=
    fi
    export RUNLOG_SECOND_PYTHON=$second
    cd "$client"
    PYTHONPATH=$installed timeout --kill-after=10 700 "$python" -m pytest -p no:cacheprovider "$@" </dev/null >&2
    ;;
  wheels)
    folder=$(realpath -m "${1:-$top/target/wheels}")
    for project in "$client" "$client-server"; do wheel "$project" "$folder"; done
    sha256sum "$folder"/runlog*.whl
    ;;
  run) PYTHONPATH=$client/src exec "$python" "$@" ;;
  kills) PYTHONPATH=$client/src:$client/tests exec "$python" -m kills "$@" ;;
  fleet-kills)
    "$top/scripts/typescript.sh" build
    PYTHONPATH=$client/src:$client/tests exec "$python" -m kills --rust 0.34 --typescript 0.33 "$@"
    ;;
  graph-kills) PYTHONPATH=$client/src:$client/tests exec "$python" -m kills --graph "$@" ;;
  trials) PYTHONPATH=$client/src:$client/tests exec "$python" -m trials "$@" ;;
  savers) PYTHONPATH=$client/src:$client/tests exec "$python" -m savers "$@" ;;
  saver-latency) PYTHONPATH=$client/src:$client/tests exec "$python" -m saver_latency "$@" ;;
  *) die "usage: $0 test|install|lint|run|peer|kills|fleet-kills|graph-kills|trials|savers|saver-latency|wheels|lock" ;;
esac
