#!/usr/bin/env bash
# secrets.sh [renew]   makes the certificates and the token of the services of deploy/compose.yaml, in deploy/secrets/
#
# An authority, a certificate for each side, and a token. Files that are valid for another month stay; `renew`
# replaces the certificates. Replaces the authority only if it would expire before the certificates that it signs.
# The authority's key never leaves that folder. RUNLOG_CERTIFICATE_DAYS is how long certificates are valid.
# The last line on stdout says whether it made certificates: `certificates` or `nothing`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

secrets=${RUNLOG_SECRETS:-$top/deploy/secrets}
authority_days=3650
certificate_days=${RUNLOG_CERTIFICATE_DAYS:-397}
# Renewed this long before they end, seconds.
margin=$((30 * 86400))

has openssl || die "openssl is missing; scripts/setup.sh compose installs it"
umask 077
mkdir -p "$secrets"
# Two at a time would mix their certificates.
exec 9>"$secrets/.lock"
flock -w 60 9 || die "another run of $0 is in progress"
# The folder of incomplete files. A complete file is moved to its place.
work=$(mktemp -d "$secrets/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
changed=

run_openssl() {
  local printed
  printed=$(timeout 60 openssl "$@" </dev/null 2>&1) || die "openssl $1: $printed"
}

# lasts FILE SECONDS: whether a certificate is valid for longer.
lasts() { [ -s "$1" ] && timeout 60 openssl x509 -in "$1" -noout -checkend "$2" >/dev/null 2>&1; }

# goes_with KEY CERTIFICATE: whether they are a pair, which a run that was killed may not have left.
goes_with() {
  [ -s "$1" ] && [ -s "$2" ] &&
    [ "$(timeout 60 openssl pkey -in "$1" -pubout 2>/dev/null)" = "$(timeout 60 openssl x509 -in "$2" -noout -pubkey 2>/dev/null)" ]
}

key() { run_openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

make_authority() {
  say "making an authority for the services, in $secrets"
  key "$work/authority.key"
  run_openssl req -x509 -new -key "$work/authority.key" -days "$authority_days" -subj "/CN=Runlog on this machine" \
    -addext keyUsage=critical,keyCertSign,cRLSign -addext basicConstraints=critical,CA:TRUE -out "$work/ca.pem"
  mv "$work/authority.key" "$work/ca.pem" "$secrets/"
}

# sign NAME SANS: a certificate and its key, each replaced in one step.
sign() {
  local name=$1 sans=$2
  key "$work/$name.key"
  run_openssl req -new -key "$work/$name.key" -subj "/CN=$name" -out "$work/$name.csr"
  {
    echo "basicConstraints=critical,CA:FALSE"
    echo "keyUsage=critical,digitalSignature"
    echo "extendedKeyUsage=serverAuth,clientAuth"
    echo "subjectKeyIdentifier=hash"
    echo "authorityKeyIdentifier=keyid"
    echo "subjectAltName=$sans"
  } >"$work/$name.ext"
  run_openssl x509 -req -in "$work/$name.csr" -CA "$secrets/ca.pem" -CAkey "$secrets/authority.key" \
    -set_serial "0x$(openssl rand -hex 16)" -days "$certificate_days" -extfile "$work/$name.ext" -out "$work/$name.pem"
  mv "$work/$name.key" "$work/$name.pem" "$secrets/"
  changed=yes
}

renew=
case ${1:-} in renew) renew=yes ;; '') ;; *) echo "usage: $0 [renew]" >&2; exit 2 ;; esac

if ! goes_with "$secrets/authority.key" "$secrets/ca.pem" || ! lasts "$secrets/ca.pem" $(((certificate_days + 1) * 86400)); then
  make_authority
  renew=yes
fi
here=DNS:localhost,IP:127.0.0.1,IP:::1
# The broker; the server, also as a client of the broker; and a client of the broker on this machine, as of an import.
# The numbered names are of deploy/compose-three.yaml.
kafkas=DNS:kafka,DNS:kafka-1,DNS:kafka-2,DNS:kafka-3
runlogs=DNS:runlog,DNS:runlog-1,DNS:runlog-2
for certificate in "kafka $kafkas,$here" "runlog $runlogs,$here" "operator DNS:operator"; do
  read -r name sans <<<"$certificate"
  pem=$secrets/$name.pem
  if [ -n "$renew" ] || ! goes_with "$secrets/$name.key" "$pem" || ! lasts "$pem" "$margin"; then sign "$name" "$sans"; fi
done

# create_token PRINCIPAL FILE SCOPES: the file has the token; its hash is in tokens.json.
create_token() {
  timeout 60 "$top/bin/runlog" --json --quiet token create --tokens "$secrets/tokens.json" --principal "$1" --scope "$3" \
    --runs '*' </dev/null | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' >"$work/token"
  [ -s "$work/token" ] || die "bin/runlog made no token"
  mv "$work/token" "$secrets/$2"
}
[ -s "$secrets/token" ] || create_token operator token append,read_meta,read_content,resolve,operate,audit
# It may ask whether the server is well, and nothing about a run.
[ -s "$secrets/health-token" ] || create_token health health-token audit

# Names of the files as the server sees them in its container, and for clients of the broker on this machine.
kafka_properties() {
  echo "security.protocol=ssl"
  echo "ssl.ca.location=$1/ca.pem"
  echo "ssl.certificate.location=$1/$2.pem"
  echo "ssl.key.location=$1/$2.key"
}
kafka_properties /secrets runlog >"$secrets/server.properties"
kafka_properties "$secrets" operator >"$secrets/kafka.properties"
cat "$secrets/kafka.key" "$secrets/kafka.pem" >"$work/broker.pem"
mv "$work/broker.pem" "$secrets/"

if [ -n "$changed" ]; then echo certificates; else echo nothing; fi
