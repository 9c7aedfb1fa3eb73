#!/usr/bin/env python3
"""Starts the services of deploy/compose.yaml under a name of their own, and checks the documented promises.

    tests/python/compose.py

The images and bin/runlog must be there; `make compose-check` makes them. Everything that it starts and writes is removed again.
Prints a line a claim. Exits 0 where all hold.
"""

import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from journal import KAFKA_IMAGE, TOP, free_port

PROJECT = f"runlog-check-{os.getpid()}"
SERVICES = ("kafka", "runlog")
# The exact files of each service.
FILES = {
    "kafka": {"broker.pem", "ca.pem"},
    "runlog": {"ca.pem", "runlog.pem", "runlog.key", "server.properties", "tokens.json", "health-token"},
}


SECRETS = pathlib.Path(tempfile.mkdtemp(prefix="runlog-compose-"))
PORT, KAFKA_PORT = free_port(), free_port()
URL = f"https://127.0.0.1:{PORT}"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RUNLOG_") or "IMAGE" in name} | {
    "RUNLOG_COMPOSE_PROJECT": PROJECT,
    "RUNLOG_SECRETS": str(SECRETS),
    "RUNLOG_PORT": str(PORT),
    "RUNLOG_KAFKA_PORT": str(KAFKA_PORT),
}
AS_TOLD = {"RUNLOG_SERVER": URL, "RUNLOG_CA": f"{SECRETS}/ca.pem", "RUNLOG_TOKEN_FILE": f"{SECRETS}/token"}


def run(*command, codes=(0,), **variables):
    ran = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, env=ENVIRONMENT | variables
    )
    if ran.returncode not in codes:
        raise AssertionError(f"{' '.join(map(str, command))}: {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran


def compose(verb):
    return run(TOP / "scripts/compose.sh", verb).stderr


def runlog(*arguments, codes=(0,)):
    return run(TOP / "bin/runlog", "--json", *arguments, codes=codes, **AS_TOLD)


def inspected(service, what):
    identity = run("docker", "ps", "-q", "-f", f"label=com.docker.compose.project={PROJECT}", "-f",
                   f"label=com.docker.compose.service={service}").stdout.strip()
    return identity, json.loads(run("docker", "inspect", "-f", "{{json " + what + "}}", identity).stdout)


def claim(text):
    print(f"holds: {text}", flush=True)


def status(url, token=None, trust=None):
    """The status of an answer, or the reason why there is no answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cafile=trust) if trust else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        return opener.open(urllib.request.Request(url, headers=headers), timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        return str(error.reason)


def kafka_answers(context):
    """Whether the broker answers this client's first request, which asks for its versions."""
    body = struct.pack(">hhih", 18, 0, 1, -1)  # ApiVersions, version 0, correlation id, no client id
    try:
        with socket.create_connection(("127.0.0.1", KAFKA_PORT), timeout=10) as plain:
            stream = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
            stream.sendall(struct.pack(">i", len(body)) + body)
            # The length and the correlation id. The TLS alert that a client without TLS gets has neither.
            return stream.recv(8, socket.MSG_WAITALL if stream is plain else 0)[4:] == struct.pack(">i", 1)
    except OSError:
        return False


def serial():
    context = ssl.create_default_context(cafile=f"{SECRETS}/ca.pem")
    with socket.create_connection(("127.0.0.1", PORT), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            return stream.getpeercert()["serialNumber"]


def only_encrypted_and_with_a_token():
    token, trust = (SECRETS / "token").read_text().strip(), f"{SECRETS}/ca.pem"
    found = [
        status(f"http://127.0.0.1:{PORT}/v1/runs", token),
        status(f"{URL}/v1/runs", token),
        status(f"{URL}/v1/runs", None, trust),
        status(f"{URL}/v1/runs", (SECRETS / "health-token").read_text().strip(), trust),
        status(f"{URL}/v1/runs", token, trust),
    ]
    assert found[0] == 400 and "CERTIFICATE_VERIFY_FAILED" in str(found[1]) and found[2:] == [401, 403, 200], found
    claim("the server answers over TLS only, with a token only, and the health check's token reads no runs")


def only_clients_with_a_certificate():
    anyone = ssl.create_default_context(cafile=f"{SECRETS}/ca.pem")
    known = ssl.create_default_context(cafile=f"{SECRETS}/ca.pem")
    known.load_cert_chain(f"{SECRETS}/operator.pem", f"{SECRETS}/operator.key")
    found = [kafka_answers(context) for context in (None, anyone, known)]
    assert found == [False, False, True], found
    claim("the broker answers clients that show a certificate of the authority, and no others")


def appended():
    record = {"run_id": "trip-1", "record_id": "r-1", "payload": {
        "type": "conversation_turn", "message_id": "m-1", "kind": "user", "content": "Hi"}}
    file = SECRETS / "record.jsonl"
    file.write_text(json.dumps(record))
    answer = json.loads(runlog("publish", file).stdout.splitlines()[0])
    assert answer["outcome"] == "applied", answer
    recorded = SECRETS / "recorded.json"
    recorded.write_text(json.dumps([{"task_id": 1, "trial": 0, "reward": 1.0, "traj": [{"role": "user", "content": "Hi"}]}]))
    runlog("import", "tau-bench", recorded, "--brokers", f"127.0.0.1:{KAFKA_PORT}", "--kafka-properties",
           SECRETS / "kafka.properties")
    there()
    claim("as `make up` says it, the command appends through the server, and imports to the broker itself")


def there():
    runs = {run["run_id"] for run in json.loads(runlog("runs", "--consistency", "latest").stdout)["runs"]}
    assert "trip-1" in runs and len(runs) == 2, runs


def hardened():
    for service in SERVICES:
        identity, host = inspected(service, ".HostConfig")
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"], host
        assert "no-new-privileges:true" in host["SecurityOpt"], host
        assert all(binding["HostIp"] == "127.0.0.1" for ports in host["PortBindings"].values() for binding in ports), host
        processes = run("docker", "top", identity, "-o", "pid,uid,args").stdout.splitlines()[1:]
        assert processes and all(line.split()[1] == "1000" for line in processes), processes
    claim("both services run as an ordinary user, with a read-only root and without capabilities, published on loopback only")


def keys_of_their_own():
    for service in SERVICES:
        listed = run("docker", "run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", "-v",
                     f"{PROJECT}_{service}-secrets:/secrets:ro", KAFKA_IMAGE, "-c", "cd /secrets && stat -c '%a %u %n' *").stdout
        found = {name: (mode, owner) for mode, owner, name in (line.split() for line in listed.splitlines())}
        assert found == {name: ("600", "1000") for name in FILES[service]}, found
    assert all(file.stat().st_mode & 0o77 == 0 for file in SECRETS.iterdir())
    claim("each service has its own keys alone, for its user alone; the authority's key is in neither")


def healthy():
    identity, test = inspected("runlog", ".Config.Healthcheck.Test")
    run("docker", "exec", identity, *test[1:])
    identity, health = inspected("kafka", ".State.Health.Status")
    assert health == "healthy", health
    claim("the health checks ask as clients do, and pass")


def renewed():
    before = serial()
    compose("down")
    assert not run("docker", "ps", "-q", "-f", f"label=com.docker.compose.project={PROJECT}").stdout
    # As if made a year ago.
    run(TOP / "scripts/secrets.sh", "renew", RUNLOG_CERTIFICATE_DAYS="20")
    assert run(TOP / "scripts/secrets.sh").stdout == "certificates\n"
    assert run(TOP / "scripts/secrets.sh").stdout == "nothing\n"
    compose("up")
    after = serial()
    assert before != after
    there()
    compose("renew")
    assert after != serial()
    there()
    claim("certificates are renewed before they expire, and on request; tokens and records stay")


def remove():
    for name in (f"{PROJECT}_{service}-secrets" for service in SERVICES):
        run("docker", "volume", "rm", "-f", name, codes=(0, 1))
    for name in ("kafka", "data"):
        run("docker", "volume", "rm", "-f", f"{PROJECT}_{name}", codes=(0, 1))
    shutil.rmtree(SECRETS, ignore_errors=True)


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    try:
        told = compose("up")
        assert all(f"{name}={value}" in told for name, value in AS_TOLD.items()), told
        only_encrypted_and_with_a_token()
        only_clients_with_a_certificate()
        hardened()
        keys_of_their_own()
        appended()
        healthy()
        renewed()
    except AssertionError as failure:
        print(f"BROKEN: {failure}", flush=True)
        sys.exit(1)
    finally:
        compose("down")
        remove()


main()
