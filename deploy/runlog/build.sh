#!/usr/bin/env bash
# build.sh [FOLDER]   Builds the image runlog/runlog:dev from the command in FOLDER, ./bin by default, and the shared libraries
# it needs.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/../../scripts/env.sh"

image=runlog/runlog:dev
folder=${1:-$top/bin}
[ -x "$folder/runlog" ] || die "$folder/runlog is missing; make build makes bin/runlog"

label=org.runlog.binary
binary=$(cat "$folder"/* | sha256sum | cut -c 1-16)
built=$(timeout 60 docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [ "$built" = "$binary" ]; then exit 0; fi

say "building the image $image"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/root/{bin,etc} "$stage"/owned/{data,tmp}
cp "$folder"/* "$stage/root/bin/"
"$top/scripts/copy-libraries.sh" "$stage/root" "$stage/root/bin/runlog"
# The certificate authorities for connections to other servers, if this machine has them.
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  mkdir -p "$stage/root/etc/ssl/certs"
  cp -L /etc/ssl/certs/ca-certificates.crt "$stage/root/etc/ssl/certs/"
fi
echo 'runlog:x:1000:1000::/data:/bin/false' >"$stage/root/etc/passwd"
echo 'hosts: files dns' >"$stage/root/etc/nsswitch.conf"

"$top/scripts/docker-build.sh" "$image" "$stage" "$top/deploy/runlog/Dockerfile" --label "$label=$binary"
