# shellcheck shell=bash
# Sourced by the other scripts: paths and settings. The environment overrides each of them.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$top/target}
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$top/$CARGO_TARGET_DIR ;; esac
# The command that the tests run, in the profile that they are compiled with.
tested=$CARGO_TARGET_DIR/tested
# Tools that the checks install, and findings of the fuzzer: shared by all clones of this user.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/runlog
tools=$cache/tools

# deploy/kafka builds this image; an image with another name, such as apache/kafka:4.3.0, is used unchanged.
kafka_image_ours=runlog/kafka:4.3.0
export RUNLOG_KAFKA_IMAGE=${RUNLOG_KAFKA_IMAGE:-$kafka_image_ours}

# All messages go to stderr: scripts read stdout.
say() { echo "runlog: $*" >&2; }
die() { say "$@"; exit 1; }
has() { command -v "$1" >/dev/null; }
# Debian 12 has an older Node.
has_node() {
  has npm && has node && node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major > 20 || (major == 20 && minor > 18) ? 0 : 1)'
}
