#!/usr/bin/env python3
"""Starts the services of deploy/compose-three.yaml under a name of their own, ends a broker and then a server, and looks at the alerts.

    tests/python/compose_three.py

The images and bin/runlog must be there; `make compose-three-check` makes them. Everything that it starts and writes is removed
again. Prints a line a claim. Exits 0 if all hold.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from journal import TOP, free_port

PROJECT = f"runlog-three-check-{os.getpid()}"
SECRETS = pathlib.Path(tempfile.mkdtemp(prefix="runlog-compose-three-"))
PORTS = [free_port() for _ in range(3)]
URLS = [f"https://127.0.0.1:{port}" for port in PORTS[:2]]
PROMETHEUS = f"http://127.0.0.1:{PORTS[2]}"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RUNLOG_") or "IMAGE" in name} | {
    "RUNLOG_COMPOSE": "three",
    "RUNLOG_COMPOSE_PROJECT": PROJECT,
    "RUNLOG_SECRETS": str(SECRETS),
    "RUNLOG_PORT": str(PORTS[0]),
    "RUNLOG_PORT_2": str(PORTS[1]),
    "RUNLOG_PROMETHEUS_PORT": str(PORTS[2]),
}
# Time for a new leader, and for an alert that waits two minutes, seconds.
PATIENCE = 300


def claim(text):
    print(f"holds: {text}", flush=True)


def run(*command, codes=(0,), **variables):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, env=ENVIRONMENT | variables)
    if ran.returncode not in codes:
        raise AssertionError(f"{' '.join(map(str, command))}: {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran


def compose(verb):
    return run(TOP / "scripts/compose.sh", verb).stderr


def runlog(server, *arguments, codes=(0,)):
    return run(TOP / "bin/runlog", "--json", *arguments, codes=codes, RUNLOG_SERVER=URLS[server], RUNLOG_CA=f"{SECRETS}/ca.pem",
               RUNLOG_TOKEN_FILE=f"{SECRETS}/token")


def container(service):
    found = run("docker", "ps", "-aq", "-f", f"label=com.docker.compose.project={PROJECT}", "-f",
                f"label=com.docker.compose.service={service}").stdout.split()
    assert len(found) == 1, (service, found)
    return found[0]


def awaited(what, look):
    """Repeats until `look` returns something."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):  # as long as Prometheus does not listen
            if found := look():
                return found
        assert time.monotonic() < until, f"{what}: not after {PATIENCE} s"
        time.sleep(1)


def prometheus(path, **parameters):
    with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
        return json.loads(answer.read())["data"]


def series(query):
    return [found["metric"] for found in prometheus("query", query=query)["result"]]


def firing():
    return {alert["labels"]["alertname"] for alert in prometheus("alerts")["alerts"] if alert["state"] == "firing"}


def publish(server, record_id):
    """Appends a record, and repeats it as a client does while a leader is missing."""
    record = {"run_id": "trip-1", "record_id": record_id, "payload": {
        "type": "conversation_turn", "message_id": record_id, "kind": "user", "content": "Hi"}}
    file = SECRETS / "record.jsonl"
    file.write_text(json.dumps(record))

    def once():
        ran = runlog(server, "publish", file, codes=(0, 4))
        return ran.returncode == 0 and json.loads(ran.stdout.splitlines()[0])["outcome"] in ("applied", "repeat")

    awaited(f"record {record_id} through server {server + 1}", once)


def records(server):
    shown = runlog(server, "show", "trip-1", "--consistency", "latest").stdout
    return [json.loads(line)["record_id"] for line in shown.splitlines()]


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    try:
        printed = compose("up")
        assert all(url in printed for url in [*URLS, PROMETHEUS]), printed
        publish(0, "r-1")
        publish(1, "r-2")
        assert records(0) == records(1) == ["r-1", "r-2"], (records(0), records(1))
        findings = json.loads(runlog(1, "doctor").stdout)["findings"]
        assert not findings, findings
        claim("two servers append to one journal on three brokers, each answers `latest` alike, and `doctor` finds nothing")

        awaited("both servers are scraped", lambda: len(series('runlog_end_offset{job="runlog",partition="0"}')) == 2)
        assert not firing(), firing()
        claim("Prometheus scrapes both, and no alert fires")

        run("docker", "kill", container("kafka-1"))
        for number in range(3, 9):
            publish(number % 2, f"r-{number}")
        assert records(0) == records(1) == [f"r-{number}" for number in range(1, 9)], records(0)
        run("docker", "start", container("kafka-1"))
        claim("without one broker both servers append and answer")

        run("docker", "kill", container("runlog-1"))
        publish(1, "r-9")
        assert records(1)[-1] == "r-9"
        awaited("the alert about the killed server", lambda: "RunlogDown" in firing())
        assert firing() == {"RunlogDown"}, firing()
        run("docker", "start", container("runlog-1"))
        awaited("the end of the alert", lambda: not firing())
        assert records(0)[-1] == "r-9"
        claim("without one server the other one appends and answers; RunlogDown fires, alone, until the server is back")
    except AssertionError as failure:
        print(f"BROKEN: {failure}", flush=True)
        sys.exit(1)
    finally:
        compose("down")
        for name in ("kafka-secrets", "runlog-secrets", "kafka-1", "kafka-2", "kafka-3", "data-1", "data-2", "prometheus"):
            run("docker", "volume", "rm", "-f", f"{PROJECT}_{name}", codes=(0, 1))
        shutil.rmtree(SECRETS, ignore_errors=True)


main()
