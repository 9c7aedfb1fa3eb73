#!/usr/bin/env bash
# prepare.sh   Fetches and starts what `test.sh all` needs beside compiled tests: Docker, the image of Kafka, two Python
# environments, the packages of the TypeScript client, and Java's jars. It mostly waits for the network, so test.sh runs it while cargo compiles.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$top"

# verify.sh starts this early, and test.sh again before it needs the result.
mkdir -p "$cache"
exec 9>"$cache/prepare.lock"
flock -w 1200 9 || die "another process has been preparing the tests for 20 minutes"

scripts/docker.sh
deploy/kafka/build.sh
scripts/python.sh install
if has_node; then scripts/typescript.sh install; fi
tests/python/venv.sh >/dev/null
tests/java/jars.sh >/dev/null
