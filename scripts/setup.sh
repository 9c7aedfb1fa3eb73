#!/usr/bin/env bash
# Installs missing packages on Debian and Ubuntu. If no package is missing, it needs no network.
#   setup.sh build     the build dependencies
#   setup.sh test      and the dependencies of the tests on a real Kafka
#   setup.sh compose   and Docker Compose
#   setup.sh fronts    and nginx
#   setup.sh systemd   and systemd's tools and strace
#   setup.sh page      and Chromium, fonts, Node and npm
#   setup.sh postgres  and PostgreSQL, for the benchmarks
set -euo pipefail

tier=${1:-build}
case $tier in build | test | compose | fronts | systemd | page | postgres) ;; *) echo "usage: $0 [build|test|compose|fronts|systemd|page|postgres]" >&2; exit 2 ;; esac

# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

rust_min=1.95
missing=()

at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Adds a package to the missing packages, unless dpkg has installed it.
need() {
  for package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
}

need_build() {
  need build-essential clang libclang-dev pkg-config \
    libssl-dev zlib1g-dev libzstd-dev libsasl2-dev libcurl4-openssl-dev
  # Fetches RocksDB's release, in less time than compiling RocksDB takes.
  if [ "${ROCKSDB:-release}" != source ]; then has mvn || need maven; fi
}

# A Docker or a Python from another source than Debian counts too.
need_test() {
  if ! has dockerd && ! timeout 20 docker info >/dev/null 2>&1; then
    need docker.io iptables
  fi
  if ! has python3; then
    need python3 python3-venv
  elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    need python3-venv
  fi
  # A Java program reads the golden files. The image that we build ourselves contains the same Java and a shell.
  has mvn || need maven
  if ! has jlink || ! at_least 17 "$(jlink --version)"; then need openjdk-17-jdk-headless; fi
  if [ "$RUNLOG_KAFKA_IMAGE" = "$kafka_image_ours" ]; then need busybox-static; fi
  # Counts instructions (tests/tests/instructions.rs).
  has valgrind || need valgrind
  # Makes the certificate of the server that Prometheus scrapes (tests/python/monitoring.py).
  has openssl || need openssl
}

need_compose() {
  timeout 20 docker compose version >/dev/null 2>&1 || has docker-compose || need docker-compose
  # Makes the services' certificates.
  has openssl || need openssl
}

need_fronts() {
  has openssl || need openssl
  { has nginx || [ -x /usr/sbin/nginx ]; } || need nginx-light
}

need_systemd() {
  has systemd-analyze || need systemd
  has strace || need strace
}

need_page() {
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || need chromium
  need fonts-inter fonts-noto-core
  # A Node from another source than Debian counts too.
  has node || need nodejs
  has npm || need npm
}

need_postgres() {
  if ! has initdb && ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then need postgresql; fi
}

check_rust() {
  local found
  if ! has cargo || ! has rustc; then
    say "cargo is not on PATH. Install Rust $rust_min or newer (https://rustup.rs), open a new shell, and run this again."
    exit 1
  fi
  found=$(rustc --version </dev/null | cut -d ' ' -f 2)
  if ! at_least "$rust_min" "${found%%-*}"; then
    say "rustc is $found; Runlog needs $rust_min or newer. With rustup: rustup update stable"
    exit 1
  fi
}

install_missing() {
  local become=()
  if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal sudo cannot ask for a password: it then works without a password or fails.
    if has sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      become=(sudo)
    else
      say "these packages are missing, and only root can install them. Run, then try again:"
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  say "installing ${missing[*]}"
  local apt=("${become[@]}" env DEBIAN_FRONTEND=noninteractive timeout 1200 apt-get -q -o DPkg::Lock::Timeout=300)
  # Redirects its stdout: the last line of stdout belongs to `make kafka-up`.
  "${apt[@]}" update >&2
  # Debian 13 has only later JDKs. Only the updated package lists show that.
  if [ -z "$(apt-cache madison openjdk-17-jdk-headless 2>/dev/null)" ]; then
    missing=("${missing[@]/#openjdk-17-jdk-headless/default-jdk-headless}")
  fi
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2
}

if has dpkg-query && has apt-get; then
  need_build
  case $tier in build | page) ;; *) need_test ;; esac
  if [ "$tier" = compose ]; then need_compose; fi
  if [ "$tier" = fronts ]; then need_fronts; fi
  if [ "$tier" = systemd ]; then need_systemd; fi
  if [ "$tier" = page ]; then need_page; fi
  if [ "$tier" = postgres ]; then need_postgres; fi
  if [ ${#missing[@]} -gt 0 ]; then install_missing; fi
elif ! has make || ! has clang; then
  say "this is not Debian or Ubuntu. Install the counterparts of: a C++ toolchain, make, clang and libclang's headers,"
  say "pkg-config, and the headers of openssl, zlib, zstd, cyrus-sasl and curl. The tests also need Docker, Maven,"
  say "a JDK of 17 or newer with jlink, a static busybox, Python 3 with venv, Node 20.19 with npm, and valgrind."
  exit 1
fi
check_rust
