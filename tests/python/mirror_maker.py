#!/usr/bin/env python3
"""Mirrors a journal with the real MirrorMaker 2, kills MirrorMaker while it copies, and compares home and mirror.

    tests/python/mirror_maker.py RUNLOG JARS [KILLS]

RUNLOG is the command, JARS the folder of the jars of tests/java/mirror, KILLS how often MirrorMaker is killed (3).

Two brokers, two clusters: agents write to the cluster `home`, and MirrorMaker fills the cluster `mirror`. Prints a line a check, and
exits with 0 if each check holds, otherwise with 1:
* MirrorMaker writes exactly once, and is killed in its transactions. The mirror gets each record once, and its runs have the hashes of
  the home, also after its index was built again.
* The mirror refuses each request that only the home answers, and gets no record.
* MirrorMaker with its default settings fills another topic, and `runlog doctor` reports that it does not write exactly once.
* The home is lost, and the mirror takes over. A run that was open is refused as in doubt until `runlog home accept`.

A wait for records ends when no record arrives for a while, not after a fixed time. Each wait ends when a process has ended.
"""

import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

RUNS, PARTITIONS = 20, 2
# Records that a run gets after each claim.
TURNS = 5
# A program may take this long to start, and copied records may fail to arrive for this long, seconds. After a kill the cluster
# holds MirrorMaker's old place for 10 s.
START_MAX, STALL_MAX = 180, 90
TOPIC = "runlog.journal"
# Each started process; the test ends with all of them.
STARTED = []


def start(command, **streams):
    STARTED.append(subprocess.Popen([str(part) for part in command], **streams))
    return STARTED[-1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Java:
    """A Java program; its output goes to a file."""

    def __init__(self, jars, log, memory, *arguments):
        # Without a configuration file log4j reports errors only.
        java = ["java", f"-Xmx{memory}m", "-Dlog4j2.level=INFO", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        self.command, self.log = [*java, *arguments], log
        self.start()

    def start(self):
        with open(self.log, "a") as log:
            self.process = start(self.command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ended(self):
        """Returns why the program ended, or None while it runs."""
        status = self.process.poll()
        return None if status is None else f"a program ended with {status}, see {self.log}"


def await_start(what, programs, holds):
    until = time.monotonic() + START_MAX
    while not (found := holds()):
        if dead := [why for program in programs if (why := program.ended())]:
            sys.exit(f"{what}: {dead[0]}")
        if time.monotonic() > until:
            sys.exit(f"{what}: not within {START_MAX} s")
        time.sleep(0.2)
    return found


def await_copies(what, programs, topic, holds, pause=0.2):
    """Waits while records arrive in the topic."""
    size, since = topic.size(), time.monotonic()
    while not (found := holds()):
        if dead := [why for program in programs if (why := program.ended())]:
            sys.exit(f"{what}: {dead[0]}")
        if topic.size() != size:
            size, since = topic.size(), time.monotonic()
        if time.monotonic() > since + STALL_MAX:
            sys.exit(f"{what}: no record arrived in {STALL_MAX} s")
        time.sleep(pause)
    return found


class Cluster(Java):
    """A cluster of one broker."""

    def __init__(self, jars, folder, name):
        port, controller = free_port(), free_port()
        self.address, self.data = f"127.0.0.1:{port}", folder / name
        properties = folder / f"{name}.properties"
        properties.write_text(f"""process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{self.address}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={self.data}
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
        super().__init__(jars, folder / f"{name}.log", 512, "kafka.Kafka", str(properties))
        await_start(f"the broker of {name} listens", [self], lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)


class Topic:
    """A topic in its broker's files. So the test sees open and aborted transactions without a client."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name

    def files(self):
        return [file for part in range(PARTITIONS) for file in (self.cluster.data / f"{self.name}-{part}").glob("*.log")]

    def exists(self):
        return len(self.files()) >= PARTITIONS

    def size(self):
        """The bytes of all records and transaction markers."""
        return sum(file.stat().st_size for file in self.files())

    def records(self):
        """The numbers of committed records and of aborted transactions."""
        here = aborted = 0
        for file in self.files():
            data, at, pending = file.read_bytes(), 0, {}
            while at + 61 <= len(data):
                # Kafka's record batch: offset, length, epoch, magic, checksum, attributes, …, producer, …, number of records.
                _, length, _, _, _, attributes, _, _, _, producer, _, _, count = struct.unpack_from(">qiibIhiqqqhii", data, at)
                if attributes & 0x20:
                    # A marker: the key of its only record is a version and a type, 1 for a commit and 0 for an abort.
                    [kind] = struct.unpack_from(">h", data, at + 61 + 7)
                    ended = pending.pop(producer, 0)
                    here += ended if kind == 1 else 0
                    aborted += 1 if kind == 0 and ended else 0
                elif attributes & 0x10:
                    pending[producer] = pending.get(producer, 0) + count
                else:
                    here += count
                at += 12 + length
        return here, aborted


class MirrorMaker(Java):
    """MirrorMaker from one cluster to another. The source's alias is `home`, or another name: each has its own progress."""

    def __init__(self, jars, folder, source, target, alias, settings):
        properties = folder / f"from-{alias}.properties"
        properties.write_text(f"""clusters={alias},mirror
{alias}.bootstrap.servers={source.address}
mirror.bootstrap.servers={target.address}
{alias}->mirror.enabled=true
{alias}->mirror.topics={TOPIC}
mirror->{alias}.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
plugin.discovery=service_load
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{free_port()}
{settings}
""")
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        super().__init__(jars, folder / f"from-{alias}.log", 512, main, str(properties))


class Server:
    """`runlog serve` on a topic. On a mirror without a record it ends, and is started again, as a supervisor does."""

    def __init__(self, runlog, data, cluster, topic, *options):
        serve = [runlog, "--json", "serve", "--brokers", cluster.address, "--topic", topic, "--data", data]
        self.command, self.errors = [*serve, "--listen", "127.0.0.1:0", *options], data.with_suffix(".log")
        self.runlog, self.data, self.cluster = runlog, data, cluster
        self.start()

    def start(self):
        self.url = await_start(f"the server in {self.data}", [self.cluster], self.started)

    def started(self):
        with open(self.errors, "a") as errors:
            self.process = start(self.command, stdout=subprocess.PIPE, stderr=errors, text=True)
        return json.loads(self.process.stdout.readline() or "{}").get("listening")

    def end(self):
        self.process.terminate()
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

    def run(self, *arguments):
        """The status and the output of a command at this server."""
        command = [self.runlog, "--json", "--server", self.url, *arguments]
        ended = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
        return ended.returncode, ended.stdout

    def findings(self):
        return [finding["what"] for finding in json.loads(self.run("doctor")[1])["findings"]]

    def hashes(self):
        """The hash of each run, as of the current index."""
        found = {}
        for number in range(RUNS):
            status, run = self.ask(f"/v1/runs/run-{number}?consistency=eventual")
            if status == 200:
                found[run["run_id"]] = (run["hash"], run["epoch"], run["records"])
        return found


class Agents(threading.Thread):
    """Claim run after run and append to it, until they are stopped."""

    def __init__(self, home):
        super().__init__(daemon=True)
        self.home, self.failed, self.leave = home, None, threading.Event()
        self.start()

    def run(self):
        claims = 0
        try:
            while not self.leave.is_set():
                self.write(f"run-{claims % RUNS}", range(claims * TURNS, (claims + 1) * TURNS))
                claims += 1
        except Exception as error:  # noqa: BLE001, the main thread raises it
            self.failed = error

    def write(self, run, turns):
        status, claim = self.home.ask(f"/v1/runs/{run}/claims", {"claimed_by": "a test"})
        assert status == 200, claim
        for turn in turns:
            payload = {"type": "conversation_turn", "message_id": f"{turn}", "kind": "user", "content": "hello"}
            record = {"run_id": run, "record_id": f"{run}-{turn}", "payload": payload}
            record |= {"writer_id": claim["writer_id"], "writer_epoch": claim["epoch"]}
            status, outcome = self.home.ask(f"/v1/runs/{run}/records", record)
            assert status == 200 and outcome["outcome"] == "applied", outcome
            # MirrorMaker and the brokers need the processor too.
            time.sleep(0.01)

    def ended(self):
        return None if self.failed is None else f"an agent failed: {self.failed!r}"

    def stop(self):
        self.leave.set()
        self.join()
        if self.failed:
            raise self.failed


def refusals(mirror, log):
    """Returns the number of requests that only the home answers, and the requests that the mirror does not refuse as it must."""
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
        ("/v1/home", {"log_id": log, "force": True, **who}),
        ("/v1/home/accepts", {"run_id": "run-0", **who}),
        ("/v1/runs/run-0", None),
        ("/v1/runs/run-0?consistency=latest", None),
        ("/v1/runs/run-0/outcome?record_id=r", None),
    ]
    wrong = []
    for path, body in requests:
        status, answer = mirror.ask(path, body)
        if (status, answer.get("reason"), answer.get("home")) != (503, "mirror", log):
            wrong.append(f"{path}: {status} {answer}")
    return len(requests), wrong


class Test:
    """The clusters, their servers, and the checks."""

    def __init__(self, runlog, jars, folder):
        self.runlog, self.jars, self.folder = runlog, jars, folder
        self.wrong = []
        self.clusters = [Cluster(jars, folder, name) for name in ("home", "mirror")]
        self.topics = [Topic(cluster, TOPIC) for cluster in self.clusters]
        self.home = self.server("home-data", self.clusters[0], TOPIC, "--partitions", PARTITIONS)

    def server(self, name, *arguments):
        data = self.folder / name
        data.mkdir()
        return Server(self.runlog, data, *arguments)

    def mirror_maker(self, alias, settings):
        return MirrorMaker(self.jars, self.folder, *self.clusters, alias, settings)

    def check(self, holds, what):
        print(f"{'ok    ' if holds else 'WRONG '} {what}", flush=True)
        if not holds:
            self.wrong.append(what)

    def mirror_while_agents_write(self, kills):
        """Starts a mirror, and kills MirrorMaker as soon as it has written a record, so in a transaction."""
        exactly_once = """mirror.exactly.once.source.support=enabled
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy"""
        agents, copier, topic = Agents(self.home), self.mirror_maker("home", exactly_once), self.topics[1]
        programs = [*self.clusters, copier, agents]
        # A server that starts before would create the topic itself, and begin another journal there.
        await_start("MirrorMaker creates the topic", programs, topic.exists)
        self.mirror = self.server("mirror-data", self.clusters[1], TOPIC)
        for _ in range(kills):
            before = topic.size()
            # A batch of records is longer than the marker of a transaction.
            await_copies("MirrorMaker copies", programs, topic, lambda before=before: topic.size() > before + 200, 0.001)
            copier.kill()
            copier.start()
        agents.stop()
        self.expected = self.home.hashes()
        same = lambda: self.mirror.hashes() == self.expected
        await_copies("the mirror gets the hashes of the home", programs, topic, same)
        copier.kill()
        (written, _), (copied, aborted) = (topic.records() for topic in self.topics)
        self.check(len(self.expected) == RUNS, f"the mirror has the hashes of the home's {RUNS} runs")
        self.check(copied == written, f"the mirror has {copied} records, the home has {written}")
        self.check(aborted > 0, f"{kills} kills of MirrorMaker interrupted {aborted} transactions")

    def ask_mirror(self):
        journals = [server.ask("/v1/journal")[1] for server in (self.home, self.mirror)]
        self.check(
            [journal["role"] for journal in journals] == ["home", "mirror"]
            and journals[0]["journal_id"] == journals[1]["journal_id"],
            "the servers know their roles",
        )
        healthy, findings = self.mirror.ask("/v1/doctor")[1]["healthy"], self.mirror.findings()
        exactly_once = not any("without exactly once" in what for what in findings)
        self.check(healthy and exactly_once, "`runlog doctor` finds the mirror healthy, and written exactly once")
        before = self.topics[1].size()
        number, wrong = refusals(self.mirror, journals[0]["log_id"])
        for line in wrong:
            print(f"       {line}")
        unchanged = self.topics[1].size() == before
        self.check(not wrong and unchanged, f"the mirror refuses {number} requests that only the home answers, and gets no record")

    def build_index_again(self):
        self.mirror.end()
        shutil.rmtree(self.mirror.data / "index")
        self.mirror.start()
        await_start("the index is built again", self.clusters, lambda: self.mirror.hashes() == self.expected)
        self.check(self.mirror.run("verify")[0] == 0, "an index that is built again from the mirror is equal")

    def mirror_with_defaults(self):
        """Lets MirrorMaker fill another topic with its default settings, which gives the topic another name."""
        copier, topic = self.mirror_maker("source", ""), Topic(self.clusters[1], f"source.{TOPIC}")
        programs = [*self.clusters, copier]
        await_start("MirrorMaker creates another topic", programs, topic.exists)
        mirror = self.server("default-data", self.clusters[1], topic.name)
        await_copies("another mirror is filled", programs, topic, lambda: mirror.hashes() == self.expected)
        copier.kill()
        findings = mirror.findings()
        for what in findings:
            print(f"       {what}")
        reported = any("has no transaction marker" in what for what in findings)
        self.check(reported, "`runlog doctor` reports a MirrorMaker that does not write exactly once")
        mirror.end()

    def take_over(self):
        """Loses the cluster of the home, and makes the mirror the home."""
        lost = self.home.ask("/v1/journal")[1]["log_id"]
        self.clusters[0].kill()
        self.home.process.kill()
        self.mirror.end()
        self.mirror.command += ["--take-home", lost, "--who", "jo", "--why", "the cluster is lost"]
        self.mirror.start()
        is_home = lambda: self.mirror.ask("/v1/journal")[1]["role"] == "home"
        await_start("the mirror takes over", [self.clusters[1]], is_home)
        claims = [self.mirror.ask(f"/v1/runs/run-{number}/claims", {"claimed_by": "a test"}) for number in range(RUNS)]
        doubts = sum(status == 409 and answer.get("reason") == "doubt" for status, answer in claims)
        self.check(doubts == RUNS, f"after the mirror took over, {doubts} of {RUNS} open runs are refused as in doubt")
        accepted, _ = self.mirror.run("home", "accept", "run-0", "--who", "jo", "--why", "its effects are checked", "--yes")
        self.check(accepted == 0, "`runlog home accept` accepts a run")
        claim, other = (self.mirror.ask(f"/v1/runs/run-{number}/claims", {"claimed_by": "a test"}) for number in range(2))
        in_doubt = other[0] == 409 and other[1].get("reason") == "doubt"
        self.check(claim[0] == 200 and in_doubt, "agents can claim the accepted run, and no other open run")


def main():
    runlog, jars = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-mirror-"))
    wrong = True
    try:
        test = Test(runlog, jars, folder)
        test.mirror_while_agents_write(kills)
        test.ask_mirror()
        test.build_index_again()
        test.mirror_with_defaults()
        test.take_over()
        wrong = test.wrong
    finally:
        for process in reversed(STARTED):
            process.kill()
            process.wait()
        if wrong:
            print(f"the logs are in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    os.environ["LD_LIBRARY_PATH"] = f"{pathlib.Path(sys.argv[1]).resolve().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    main()
