#!/usr/bin/env bash
# page.sh unit     the page's pure functions, its size and its vendored files, without a browser
# page.sh test     the page in Debian's Chromium; RUNLOG_BIN names the command, screenshots go to target/page
# page.sh memory   leaves a page open under load for RUNLOG_PAGE_MINUTES (60): fails if a view's memory grows
# page.sh shots    makes the screenshots of the README and docs/operate.md again, of the running demo
# page.sh types    checks the types that the page's comments state
# page.sh vendor   fetches the vendored modules again, in the versions of tests/page/package-lock.json, and pins them
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

ui=projector/server/ui

# Needs the browser, the command and the modules.
need_browser() {
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || die "chromium is missing: apt-get install chromium fonts-inter fonts-noto-core"
  export RUNLOG_BIN=${RUNLOG_BIN:-$top/bin/runlog}
  [ -x "$RUNLOG_BIN" ] || die "no command at $RUNLOG_BIN: run make build, or name another with RUNLOG_BIN"
  modules
}

has_node || die "Node 20.19 or newer, with npm, is missing"

modules() {
  # The lock file has the hash of every package, and no package may run a script.
  (cd tests/page && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
}

case ${1:-} in
  unit)
    node --test tests/page/unit.test.mjs
    (cd "$ui/vendor" && sha256sum --check --strict --quiet SHA256SUMS)
    ;;
  test)
    need_browser
    # Writes what no server writes.
    export RUNLOG_TEST_PROCESS=${RUNLOG_TEST_PROCESS:-$CARGO_TARGET_DIR/debug/test_process}
    [ -x "$RUNLOG_TEST_PROCESS" ] || cargo build --locked --bin test_process
    export RUNLOG_PAGE_SHOTS=${RUNLOG_PAGE_SHOTS:-$CARGO_TARGET_DIR/page}
    node --test --test-reporter=spec tests/page/page.test.mjs
    ;;
  memory)
    need_browser
    node tests/page/memory.mjs
    ;;
  shots)
    need_browser
    node tests/page/shots.mjs
    ;;
  types)
    modules
    tests/page/node_modules/.bin/tsc --project tests/page/tsconfig.json
    ;;
  vendor)
    modules
    # take FILE NAME: without the link to its source map, and with relative imports, since an import map would be an inline
    # script.
    take() {
      sed -E -e '1s#^#// @ts-nocheck\n#' -e 's#//\# sourceMappingURL=[^ ]*$##' -e 's#from"preact/hooks"#from"./hooks.js"#g' -e 's#from"preact"#from"./preact.js"#g' \
        "tests/page/node_modules/$1" >"$ui/vendor/$2"
    }
    take preact/dist/preact.mjs preact.js
    take preact/hooks/dist/hooks.mjs hooks.js
    take htm/dist/htm.mjs htm.js
    (cd "$ui/vendor" && sha256sum ./*.js | sed 's#\./##' >SHA256SUMS)
    ;;
  *)
    echo "usage: $0 unit|test|memory|shots|types|vendor" >&2
    exit 2
    ;;
esac
