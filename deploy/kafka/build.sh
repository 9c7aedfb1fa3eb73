#!/usr/bin/env bash
# Builds the image of a real Kafka broker from Maven's jars and this machine's own files, because an image registry
# is not reachable everywhere. Does nothing if the image exists and was built by the current version of this script.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/../../scripts/env.sh"
here=$top/deploy/kafka

if [ "$RUNLOG_KAFKA_IMAGE" != "$kafka_image_ours" ]; then
  if ! timeout 60 docker image inspect "$RUNLOG_KAFKA_IMAGE" >/dev/null 2>&1; then
    say "pulling $RUNLOG_KAFKA_IMAGE"
    timeout 900 docker pull -q "$RUNLOG_KAFKA_IMAGE" </dev/null >&2
  fi
  exit 0
fi

recipe=$(cd "$here" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16)
label=org.runlog.recipe
built=$(timeout 60 docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$kafka_image_ours" 2>/dev/null || true)
if [ "$built" = "$recipe" ]; then exit 0; fi

say "building the image $kafka_image_ours (under a minute, once)"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root owned=$stage/owned
mkdir -p "$root"/{bin,etc/kafka/docker,opt/kafka,tmp,usr/bin} \
  "$owned"/{etc/kafka/secrets,home/appuser,mnt/shared/config,opt/kafka/{classes,config},var/lib/kafka/data}
chmod 1777 "$root/tmp"

# The jars. Maven leaves its own folder target/ beside the pom, so it gets a copy.
cp "$here/pom.xml" "$stage/pom.xml"
if ! printed=$(timeout 600 mvn -B -q -ntp -f "$stage/pom.xml" dependency:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$root/opt/kafka/libs" </dev/null 2>&1); then
  die "Maven could not fetch Kafka's jars: $printed"
fi

# The runtime: java.desktop has java.beans, which log4j needs; jdk.management reports the machine's load to Kafka.
jlink --output "$root/opt/java" --no-header-files --no-man-pages --strip-java-debug-attributes --add-modules \
java.base,java.desktop,java.logging,java.management,java.naming,java.rmi,java.security.jgss,java.security.sasl,\
java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported >&2
# The archive of the runtime's own classes. The archive of Kafka's classes is built on it (see archive).
"$root/opt/java/bin/java" -Xshare:dump >/dev/null 2>&1

# The shell and the libraries that the runtime and Kafka's codecs are linked with.
busybox=$(dpkg-query -L busybox-static 2>/dev/null | grep '/bin/busybox$' || command -v busybox)
cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
  if [ "$applet" != busybox ]; then ln -s busybox "$root/bin/$applet"; fi
done
ln -s /bin/env "$root/usr/bin/env"
mkdir "$stage/codecs"
for jar in "$root"/opt/kafka/libs/{zstd-jni,snappy-java,lz4-java}-*.jar; do (cd "$stage/codecs" && jar xf "$jar"); done
find "$root/opt/java" "$stage/codecs" \( -name '*.so' -o -name java \) -type f -print0 |
  xargs -0 "$top/scripts/copy-libraries.sh" "$root"

cp "$here"/config/* "$here/run" "$here/archive" "$root/etc/kafka/docker/"
chmod +x "$root"/etc/kafka/docker/{run,archive}
echo 'root:x:0:0:root:/:/bin/sh
appuser:x:1000:1000::/home/appuser:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:
appuser:x:1000:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

"$top/scripts/docker-build.sh" "$kafka_image_ours" "$stage" "$here/Dockerfile" --label "$label=$recipe"
say "built $kafka_image_ours"
