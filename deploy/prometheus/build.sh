#!/usr/bin/env bash
# Builds the image runlog/prometheus:dev from Debian's package of Prometheus, for deploy/compose-three.yaml.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/../../scripts/env.sh"

image=runlog/prometheus:dev
here=$top/deploy/prometheus
program=$("$top/scripts/prometheus.sh")/prometheus
label=org.runlog.recipe
recipe=$(cat "$program" "$here/Dockerfile" "$here/build.sh" | sha256sum | cut -c 1-16)
built=$(timeout 60 docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [ "$built" = "$recipe" ]; then exit 0; fi

say "building the image $image"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/root/{bin,etc/prometheus} "$stage/owned/data"
cp "$program" "$stage/root/bin/"
"$top/scripts/copy-libraries.sh" "$stage/root" "$program"
echo 'prometheus:x:1000:1000::/data:/bin/false' >"$stage/root/etc/passwd"
echo 'hosts: files dns' >"$stage/root/etc/nsswitch.conf"
"$top/scripts/docker-build.sh" "$image" "$stage" "$here/Dockerfile" --label "$label=$recipe"
