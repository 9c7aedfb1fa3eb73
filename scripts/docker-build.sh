#!/usr/bin/env bash
# docker-build.sh IMAGE CONTEXT DOCKERFILE [OPTION...]
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

image=$1 context=$2 dockerfile=$3
shift 3
# Newer clients build with a plug-in that not every machine has; the daemon's own builder is enough for us.
if ! timeout 20 docker buildx version >/dev/null 2>&1; then export DOCKER_BUILDKIT=0; fi
before=$(timeout 60 docker image inspect -f '{{.Id}}' "$image" 2>/dev/null || true)
# That builder announces its own end on every use, so what is printed is shown on failure only.
if ! printed=$(timeout 600 docker build -q -t "$image" -f "$dockerfile" "$@" "$context" </dev/null 2>&1); then
  die "docker build of $image failed: $printed"
fi
after=$(timeout 60 docker image inspect -f '{{.Id}}' "$image")
# Removes the former image, which has no name now, unless a container uses it.
if [ -n "$before" ] && [ "$before" != "$after" ]; then timeout 60 docker rmi "$before" >/dev/null 2>&1 || true; fi
