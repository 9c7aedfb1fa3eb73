#!/usr/bin/env python3
"""Mirrors a journal with the real MirrorMaker 2, exactly once, kills MirrorMaker while it copies, and compares home and mirror.

    tests/python/mirror_maker.py RUNLOG JARS [KILLS]

RUNLOG is the command, JARS the folder of the jars of tests/java/mirror, KILLS how often MirrorMaker is killed (3).

Two brokers, two clusters: agents write to the first one, and MirrorMaker fills the second one. Prints a line a check. Exits 0 if the
mirror has the run hashes of the home, also after its index was built again, and refuses each request that only the home answers,
without a record of its own; otherwise 1.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

RUNS, TURNS = 20, 30
# Seconds.
START_MAX, COPY_MAX = 120, 240
TOPIC = "runlog.journal"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def await_true(what, seconds, holds):
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.2)
    return found


class Java:
    """A Java process; its output goes to a file."""

    def __init__(self, jars, log, *arguments):
        self.command = ["java", "-Xmx512m", "-cp", f"{jars}/*", *arguments]
        self.log = open(log, "a")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)

    def kill(self):
        self.process.kill()
        self.process.wait()


def broker(jars, folder, name):
    """Starts a cluster of one broker; returns its process and its address."""
    port, controller = free_port(), free_port()
    properties = folder / f"{name}.properties"
    properties.write_text(f"""process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder / name}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
""")
    java = ["java", "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
    cluster = subprocess.run([*java, "random-uuid"], check=True, capture_output=True, text=True).stdout.split()[-1]
    form = [*java, "format", "-t", cluster, "-c", str(properties)]
    subprocess.run(form, check=True, capture_output=True)
    process = Java(jars, folder / f"{name}.log", "kafka.Kafka", str(properties))
    listens = lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0
    await_true(f"broker {name} listens", START_MAX, listens)
    return process, f"127.0.0.1:{port}"


def mirror_maker(jars, folder, source, target):
    properties = folder / "mm2.properties"
    properties.write_text(f"""clusters=A,B
A.bootstrap.servers={source}
B.bootstrap.servers={target}
A->B.enabled=true
A->B.topics=runlog.*
B->A.enabled=false
replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
emit.heartbeats.enabled=false
emit.checkpoints.enabled=false
refresh.topics.interval.seconds=5
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
B.exactly.once.source.support=enabled
A.exactly.once.source.support=disabled
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{free_port()}
""")
    return Java(jars, folder / "mm2.log", "org.apache.kafka.connect.mirror.MirrorMaker", str(properties))


class Server:
    """`runlog serve` on a topic. On a mirror without a record it ends, and is started again, as a supervisor does."""

    def __init__(self, runlog, data, brokers):
        self.runlog, self.data, self.brokers = runlog, data, brokers
        data.mkdir(exist_ok=True)
        self.start()

    def start(self):
        self.url = await_true(f"a server on {self.brokers}", START_MAX, self.started)

    def started(self):
        command = [self.runlog, "--json", "serve", "--brokers", self.brokers, "--topic", TOPIC]
        command += ["--data", self.data, "--listen", "127.0.0.1:0"]
        if self.data.name == "home":
            command += ["--partitions", "2"]
        with open(self.data / "errors", "a") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        return json.loads(self.process.stdout.readline() or "{}").get("listening")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def ask(self, path, body=None):
        """The status and the answer of a request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def hashes(self):
        """The hash of each run, as of the current index."""
        found = {}
        for number in range(RUNS):
            status, run = self.ask(f"/v1/runs/run-{number}?consistency=eventual")
            if status == 200:
                found[run["run_id"]] = (run["hash"], run["epoch"], run["records"])
        return found

    def end_offsets(self):
        return [row["end"] for row in self.ask("/v1/doctor")[1]["partitions"]]


def write(home, turns):
    """Claims each run again, and appends turns to it."""
    for number in range(RUNS):
        run = f"/v1/runs/run-{number}"
        status, claim = home.ask(f"{run}/claims", {"claimed_by": "a test"})
        assert status == 200, claim
        records = [
            {
                "run_id": f"run-{number}",
                "record_id": f"run-{number}-{turn}",
                "writer_id": claim["writer_id"],
                "writer_epoch": claim["epoch"],
                "payload": {"type": "conversation_turn", "message_id": f"{turn}", "kind": "user", "content": "hello"},
            }
            for turn in turns
        ]
        for record in records:
            status, outcome = home.ask(f"{run}/records", record)
            assert status == 200 and outcome["outcome"] == "applied", outcome


def refusals(mirror, home_log):
    """Returns the requests that the mirror does not refuse as it must."""
    who = {"who": "jo", "why": "a test"}
    turn = {"type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello"}
    record = {"run_id": "new", "record_id": "r", "payload": turn}
    requests = [
        ("/v1/runs/new/records", record),
        ("/v1/runs/new/records", [record, {**record, "record_id": "s"}]),
        ("/v1/runs/new/claims", {}),
        ("/v1/runs/new/contents", {"run_id": "new", "payload": turn}),
        ("/v1/runs/new/copies", {"from": "run-0"}),
        ("/v1/runs/run-0/effects/e/resolution", {"decision": "not_done", "revision": 1, **who}),
        ("/v1/skips?force=true", {"partition": 0, "offset": 3, **who}),
        ("/v1/horizons", {"family": "conversation_turn", "until": "2026-01-01T00:00:00Z", **who}),
        ("/v1/home", {"log_id": home_log, "force": True, **who}),
        ("/v1/home/accepts", {"run_id": "run-0", **who}),
        ("/v1/runs/run-0", None),
        ("/v1/runs/run-0?consistency=latest", None),
        ("/v1/runs/run-0/outcome?record_id=r", None),
    ]
    wrong = []
    for path, body in requests:
        status, answer = mirror.ask(path, body)
        if (status, answer.get("reason"), answer.get("home")) != (503, "mirror", home_log):
            wrong.append(f"{path}: {status} {answer}")
    return wrong


def main():
    runlog, jars = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-mirror-"))
    running, wrong = [], []

    def check(holds, what):
        print(f"{'ok    ' if holds else 'WRONG '} {what}", flush=True)
        if not holds:
            wrong.append(what)

    try:
        source, address = broker(jars, folder, "A")
        running.append(source)
        target, mirrored = broker(jars, folder, "B")
        running.append(target)
        home = Server(runlog, folder / "home", address)
        running.append(home)
        copier = mirror_maker(jars, folder, address, mirrored)
        running.append(copier)
        write(home, range(TURNS))
        mirror = Server(runlog, folder / "mirror", mirrored)
        running.append(mirror)
        for kill in range(kills):
            # MirrorMaker is in the middle of its work: it has copied some of the new records.
            before = mirror.end_offsets()
            write(home, range(TURNS * (kill + 1), TURNS * (kill + 2)))
            await_true("MirrorMaker copies", COPY_MAX, lambda before=before: mirror.end_offsets() != before)
            copier.kill()
            copier.start()
        expected = home.hashes()
        await_true("the mirror has the hashes of the home", COPY_MAX, lambda: mirror.hashes() == expected)
        check(len(expected) == RUNS, f"the mirror has the hashes of the home's {RUNS} runs after {kills} kills of MirrorMaker")
        journals = [server.ask("/v1/journal")[1] for server in (home, mirror)]
        check(
            [journal["role"] for journal in journals] == ["home", "mirror"]
            and journals[0]["journal_id"] == journals[1]["journal_id"],
            "the servers know their roles",
        )
        doctor = mirror.ask("/v1/doctor")[1]
        marker = any("without a transaction marker" in finding["what"] for finding in doctor["findings"])
        check(doctor["healthy"] and not marker, "the doctor finds the mirror healthy, and written exactly once")
        before = mirror.end_offsets()
        refused = refusals(mirror, journals[0]["log_id"])
        for line in refused:
            print(f"       {line}")
        check(not refused and mirror.end_offsets() == before, "the mirror refuses what only the home answers, and gets no record")
        mirror.end()
        shutil.rmtree(folder / "mirror" / "index")
        mirror.start()
        await_true("the index is built again", COPY_MAX, lambda: mirror.hashes() == expected)
        verified = subprocess.run([runlog, "--server", mirror.url, "verify"], capture_output=True, text=True)
        check(verified.returncode == 0, "an index that is built again from the mirror is equal")
    finally:
        for process in reversed(running):
            process.process.kill()
            process.process.wait()
        if wrong or sys.exc_info()[0]:
            print(f"the logs are in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    os.environ["LD_LIBRARY_PATH"] = f"{pathlib.Path(sys.argv[1]).resolve().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    main()
