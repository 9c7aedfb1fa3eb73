#!/usr/bin/env bash
# docker-build.sh IMAGE CONTEXT DOCKERFILE [OPTION...]
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

image=$1 context=$2 dockerfile=$3
shift 3
# Newer clients build with a plug-in that some machines lack. The daemon's own builder suffices.
if ! timeout 20 docker buildx version >/dev/null 2>&1; then export DOCKER_BUILDKIT=0; fi
before=$(timeout 60 docker image inspect -f '{{.Id}}' "$image" 2>/dev/null || true)
# That builder prints a deprecation notice on every use, so its output is shown on failure only.
if ! printed=$(timeout 600 docker build -q -t "$image" -f "$dockerfile" "$@" "$context" </dev/null 2>&1); then
  die "docker build of $image failed: $printed"
fi
after=$(timeout 60 docker image inspect -f '{{.Id}}' "$image")
# Removes the previous image, which has lost its name, unless a container uses it.
if [ -n "$before" ] && [ "$before" != "$after" ]; then timeout 60 docker rmi "$before" >/dev/null 2>&1 || true; fi
