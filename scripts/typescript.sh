#!/usr/bin/env bash
# typescript.sh test [OPTION...]     compiles the TypeScript client, compares its types with the server's, and runs its tests with
#                                    bin/runlog, or $RUNLOG_BIN; options go to `node --test`
# typescript.sh validate [OPTION...] runs LangGraph's validation suite with the client's checkpointer; options go to vitest
# typescript.sh install              fetches the packages that compiling needs and nothing else
# typescript.sh build                compiles clients/typescript/dist
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top/clients/typescript"

has_node || die "Node 20.19 or newer, with npm, is missing"

# The lock file has the hash of every package, and no package may run a script.
# modules [FOLDER]   Installs the packages of a folder, by default of the client.
modules() {
  local recipe folder=${1:-.}
  recipe=$(cd "$folder" && sha256sum package.json package-lock.json | sha256sum | cut -c 1-16)
  exec 9>"$folder/.install.lock"
  flock -w 600 9
  if [ ! -e "$folder/node_modules/ready-$recipe" ]; then
    timeout 300 npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2
    touch "$folder/node_modules/ready-$recipe"
  fi
  exec 9>&-
}

command_is_there() {
  export RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
  [ -x "$RUNLOG_BIN" ] || die "no command at $RUNLOG_BIN: run make build, or name another with RUNLOG_BIN"
}

build() {
  modules
  rm -rf dist
  node_modules/.bin/tsc --project tsconfig.json
}

mode=${1:-test}
shift || true
case $mode in
  install) modules ;;
  build) build ;;
  test)
    command_is_there
    build
    node types/generate.mjs
    node_modules/.bin/tsc --project types/tsconfig.json
    timeout --kill-after=10 300 node --test --test-concurrency=4 "$@" test/*.test.mjs </dev/null
    ;;
  validate)
    command_is_there
    build
    modules validation
    cd validation
    timeout --kill-after=10 300 node_modules/.bin/vitest run "$@" </dev/null
    ;;
  *) die "usage: $0 test|validate|install|build" ;;
esac
