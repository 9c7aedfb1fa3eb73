#!/usr/bin/env python3
"""Runs a server as docs/security.md shows it: behind nginx, and in a container at 0.0.0.0 that is probed as Kubernetes does.

    tests/python/fronts.py

nginx, openssl, Docker, the images and bin/runlog must be there; `make fronts` makes them. Both recipes are taken from the document,
with other ports and folders. Prints a line a claim, with figures. Exits 0 where all claims hold.
"""

import asyncio
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from journal import (
    KAFKA_IMAGE, RUNLOG, TOP, WAIT, Connection, Server, create_token, free_port, make_secrets, percentile, run, turn
)

HOST = "journal.example"
ROUNDS = 200
NAME = f"runlog-fronts-{os.getpid()}"


def recipe(language):
    document = (TOP / "docs/security.md").read_text()
    found = re.findall(f"```{language}\n(.*?)```", document, re.DOTALL)
    assert len(found) == 1, f"{len(found)} blocks of {language}"
    return found[0]


def replaced(text, old, new):
    assert old in text, f"the recipe has no {old}"
    return text.replace(old, str(new))


def claim(text):
    print(f"holds: {text}", flush=True)


class Nginx:
    """The recipe's nginx, with its files in a folder of its own."""

    def __init__(self, folder, upstream, pem, key):
        folder.mkdir()
        self.port = free_port()
        config = replaced(recipe("nginx"), "127.0.0.1:7070", f"127.0.0.1:{upstream}")
        config = replaced(config, "listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl")
        config = replaced(replaced(config, "/etc/nginx/journal.pem", pem), "/etc/nginx/journal.key", key)
        paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{paths}{config}}}\n"
        )
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([program, "-e", folder / "error.log", "-p", folder, "-c", folder / "nginx.conf"])
        until = time.monotonic() + WAIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert time.monotonic() < until and self.process.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait(WAIT)


def trusting(ca):
    """A context for a certificate of another name, which the requests have in `Host`."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    return context


async def latencies(port, trust, token, host, run_id):
    """Milliseconds of appends and of lists of a run's records, over one connection."""
    connection = await Connection.open(port, trust, token, host)
    appends, reads = [], []
    for number in range(ROUNDS):
        begun = time.monotonic()
        status, body = await connection.ask("POST", f"/v1/runs/{run_id}/records", turn(run_id, f"r-{number}", "x" * 500))
        appends.append((time.monotonic() - begun) * 1000)
        assert status == 200 and json.loads(body)["outcome"] == "applied", body
        begun = time.monotonic()
        status, body = await connection.ask("GET", f"/v1/runs/{run_id}/records?limit=1")
        reads.append((time.monotonic() - begun) * 1000)
        assert status == 200, body
    connection.close()
    return appends, reads


def figures(values):
    return f"p50 {percentile(values, 0.5):.2f} ms, p99 {percentile(values, 0.99):.2f} ms"


async def through_nginx(nginx, server, trust, token):
    async def ask(method, path, body=None, headers=(), token=token, host=HOST):
        connection = await Connection.open(nginx.port, trust, token, host)
        status, answer = await connection.ask(method, path, body, headers)
        connection.close()
        return status, answer

    found = [
        (await ask("GET", "/v1/runs"))[0],
        (await ask("GET", "/v1/runs", token=None))[0],
        (await ask("GET", "/v1/runs", host="elsewhere.example"))[0],
        (await ask("GET", "/v1/runs", headers=["Origin: https://elsewhere.example"]))[0],
        (await ask("GET", "/v1/runs", headers=[f"Origin: https://{HOST}"]))[0],
    ]
    assert found == [200, 401, 421, 403, 200], found
    claim("with nginx, tokens, hosts and origins are checked as without it")

    status, body = await ask("POST", "/v1/runs/large/records", turn("large", "large", "x" * (20 << 20)))
    assert status == 200, body[:300]
    status, body = await ask("GET", "/v1/runs/large/records?raw=true")
    assert status == 200 and len(body) > 20 << 20, (status, len(body))
    claim("a payload of 20 MiB is appended and read through nginx")

    tail = await Connection.open(nginx.port, trust, token, HOST)
    await tail.send("GET", "/v1/runs/tailed/tail")
    status, _ = await tail.begin()
    assert status == 200, status
    delays = []
    for number in range(50):
        begun = time.monotonic()
        await ask("POST", "/v1/runs/tailed/records", turn("tailed", f"r-{number}", "x"))
        seen = b""
        while f'"r-{number}"'.encode() not in seen:
            seen += await asyncio.wait_for(tail.chunk(), WAIT)
        delays.append((time.monotonic() - begun) * 1000)
    # A stream that is idle for longer than the server's keep-alive interval of 15 s stays open.
    await asyncio.sleep(20)
    await ask("POST", "/v1/runs/tailed/records", turn("tailed", "last", "x"))
    seen = b""
    while b'"last"' not in seen:
        seen += await asyncio.wait_for(tail.chunk(), WAIT)
    tail.close()
    claim(f"a tail has each record as it is appended, also after 20 s without any: append and event take {figures(delays)}")

    alone = await latencies(server.port, None, token, "localhost", "alone")
    behind = await latencies(nginx.port, trust, token, HOST, "behind")
    for what, before, after in zip(("appends", "reads"), alone, behind):
        claim(f"{ROUNDS} {what}: without nginx {figures(before)}; with it {figures(after)}")


def behind_nginx(folder, secrets, token):
    server = Server(folder / "server", "--local", "--tokens", secrets / "tokens.json", "--allow-host", HOST)
    nginx = Nginx(folder / "nginx", server.port, secrets / "runlog.pem", secrets / "runlog.key")
    try:
        asyncio.run(through_nginx(nginx, server, trusting(secrets / "ca.pem"), token))
        listed = run(RUNLOG, "--json", "runs", RUNLOG_SERVER=f"https://localhost:{nginx.port}", RUNLOG_CA=f"{secrets}/ca.pem",
                     RUNLOG_TOKEN=token)
        assert {"large", "tailed", "behind"} <= {run["run_id"] for run in json.loads(listed)["runs"]}, listed
    finally:
        nginx.end()
        assert server.end() == 0


def probe(address, port, path, scheme="HTTP"):
    """Probes as Kubernetes' kubelet does: by the pod's address, without a token, and trusting any certificate."""
    if scheme == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, port, timeout=6, context=context)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=6)
    connection.request("GET", path, headers={"User-Agent": "kube-probe/1.33", "Accept": "*/*", "Connection": "close"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def docker(*arguments, codes=(0,)):
    ran = subprocess.run(["docker", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert ran.returncode in codes, f"docker {shlex.join(map(str, arguments))}: {ran.stdout}{ran.stderr}"
    return ran


HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")


def in_a_container(secrets, token):
    manifest = recipe("yaml")
    arguments = re.search(r"args: \[(.*?)\]", manifest, re.DOTALL)[1]
    arguments = [argument.strip().strip('"') for argument in arguments.split(",")]
    probes = re.findall(r"(\w+Probe): \{httpGet: \{path: (\S+), port: (\d+)\}", manifest)
    assert [name for name, _, _ in probes] == ["startupProbe", "livenessProbe", "readinessProbe"], probes
    image = re.search(r"image: (\S+)", manifest)[1]

    docker("network", "create", NAME)
    docker("volume", "create", NAME)
    # As Kubernetes mounts a Secret for a pod with an fsGroup.
    copy = "cp /from/runlog.pem /from/runlog.key /from/tokens.json /secrets/ && chmod 440 /secrets/* && chown -R 0:1000 /secrets"
    docker("run", "--rm", "--user", "0:0", "--network", "none", "--entrypoint", "/bin/sh", "-v", f"{secrets}:/from:ro", "-v",
           f"{NAME}:/secrets", KAFKA_IMAGE, "-c", copy)
    bare = [argument for argument in arguments]
    for flag in ("--tls-cert", "--tls-key", "--tokens"):
        del bare[bare.index(flag):bare.index(flag) + 2]
    refused = docker("run", "--rm", *HARDENED, "-v", "/data", image, *bare, codes=(2,)).stderr
    assert "--tls-cert" in refused and "--tokens" in refused, refused
    claim("in a container at 0.0.0.0, it does not start without TLS and tokens, and says what is missing")

    docker("run", "-d", "--name", NAME, "--network", NAME, "--network-alias", "runlog", *HARDENED, "-v", "/data", "-v",
           f"{NAME}:/secrets:ro", image, *arguments)
    address = docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", NAME).stdout.strip()
    begun = time.monotonic()
    while True:
        try:
            if probe(address, int(probes[0][2]), probes[0][1])[0] == 200:
                break
        except OSError:
            pass
        assert time.monotonic() - begun < WAIT, docker("logs", NAME).stderr
        time.sleep(0.05)
    started = time.monotonic() - begun
    for name, path, port in probes:
        times = []
        for _ in range(100):
            asked = time.monotonic()
            status, text = probe(address, int(port), path)
            times.append((time.monotonic() - asked) * 1000)
            assert status == 200, (name, status, text)
        claim(f"{name} {path}: 200 without a token, {figures(times)}")
    claim(f"the startup probe passes {started:.1f} s after the container's start")
    found = [probe(address, 7070, "/healthz", "HTTPS")[0], probe(address, 7070, "/readyz", "HTTPS")[0]]
    assert found == [200, 401], found
    claim("at the address for clients, an HTTPS probe of /healthz passes without a token, and /readyz needs one")
    for _ in range(50):
        socket.create_connection((address, 7070), timeout=6).close()
    metrics = probe(address, int(probes[0][2]), "/metrics")[1]
    failures = re.findall(r"^runlog_tls_handshake_failures_total\S* (\d+)", metrics, re.MULTILINE)
    assert all(count == "0" for count in failures), failures
    claim("50 probes that only connect are no failed handshakes")

    docker("run", "--rm", "--user", "0:0", "--network", "none", "--entrypoint", "/bin/sh", "-v", f"{secrets}:/from:ro", "-v",
           f"{NAME}:/secrets", KAFKA_IMAGE, "-c", "cp /from/ca.pem /secrets/ && chmod 644 /secrets/ca.pem")
    ask = ["run", "--rm", "--network", NAME, *HARDENED, "-e", f"RUNLOG_TOKEN={token}", "-v", f"{NAME}:/secrets:ro", image, "--json"]
    listed = docker(*ask, "--server", "https://runlog:7070", "--ca", "/secrets/ca.pem", "runs").stdout
    assert json.loads(listed)["runs"] == [], listed
    claim("another container asks it by the service's name, over TLS")
    begun = time.monotonic()
    docker("stop", "-t", "30", NAME)
    code = docker("inspect", "-f", "{{.State.ExitCode}}", NAME).stdout.strip()
    assert code == "0", code
    claim(f"SIGTERM ends it with exit code 0, in {time.monotonic() - begun:.1f} s")


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-fronts-"))
    try:
        secrets = folder / "secrets"
        make_secrets(secrets)
        token = create_token(secrets, "agent", "append,read_meta,read_content", "*")
        behind_nginx(folder, secrets, token)
        in_a_container(secrets, token)
    except AssertionError as failure:
        print(f"BROKEN: {failure}", flush=True)
        sys.exit(1)
    finally:
        for what in (("rm", "-f", "-v", NAME), ("network", "rm", NAME), ("volume", "rm", "-f", NAME)):
            subprocess.run(["docker", *what], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


main()
