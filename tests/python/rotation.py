#!/usr/bin/env python3
"""Changes the secrets of clients, servers and Kafka while clients append, and counts lost and repeated records.

    tests/python/rotation.py [CLIENTS]

A broker in a container lets clients in by TLS and a password (SCRAM); two servers with TLS and tokens append to it; CLIENTS (6) append to
each server in turn, each record again with the same id until it is acknowledged. Meanwhile change: the password of the broker's
user, by a rolling restart of the servers; their certificate, to one of another authority; the clients' token; and the broker is
restarted, once before and once after the servers have the new password. Docker, openssl, the image and bin/runlog must be
there. Prints a line a step. Exits 0 where each acknowledged record is in the journal once, and no others are.
"""

import asyncio
import collections
import hashlib
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

from journal import KAFKA_IMAGE, RUNLOG, WAIT, Connection, Server, create_token, free_port, make_secrets, run, turn

NAME = f"runlog-rotation-{os.getpid()}"
# Records that a step awaits, of each client: some of them began after it.
EACH = 20
# How long a record may take, while the broker is away, too.
RECORD_WAIT = 240
# For how long servers with an old password are watched, seconds.
OUTAGE = 10


class Broker:
    def __init__(self, secrets, port):
        self.port = port
        environment = {
            "NODE_ID": "1",
            "PROCESS_ROLES": "broker,controller",
            "LISTENERS": "EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093",
            "ADVERTISED_LISTENERS": f"EXTERNAL://127.0.0.1:{port},INTERNAL://localhost:19092",
            "LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "INTER_BROKER_LISTENER_NAME": "INTERNAL",
            "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
            "LISTENER_NAME_EXTERNAL_SCRAM___SHA___512_SASL_JAAS_CONFIG":
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "SSL_KEYSTORE_TYPE": "PEM",
            "SSL_KEYSTORE_KEY": (secrets / "kafka.key").read_text().replace("\n", "\\n"),
            "SSL_KEYSTORE_CERTIFICATE_CHAIN": (secrets / "kafka.pem").read_text().replace("\n", "\\n"),
        }
        flags = [part for name, value in environment.items() for part in ("-e", f"KAFKA_{name}={value}")]
        run("docker", "run", "-d", "--name", NAME, "-p", f"127.0.0.1:{port}:9092", *flags, KAFKA_IMAGE)
        self.await_start(1)

    def await_start(self, times):
        until = time.monotonic() + 120
        while run("docker", "logs", NAME).count("Kafka Server started") < times:
            assert time.monotonic() < until, "the broker does not start"
            time.sleep(0.2)

    def set_password(self, password):
        run("docker", "exec", NAME, "java", "-XX:TieredStopAtLevel=1", "-cp", "/opt/kafka/libs/*", "kafka.admin.ConfigCommand",
            "--bootstrap-server", "localhost:19092", "--alter", "--entity-type", "users", "--entity-name", "runlog", "--add-config",
            f"SCRAM-SHA-512=[iterations=4096,password={password}]")

    def restart(self, times):
        """All connections to it end."""
        run("docker", "restart", "-t", "30", NAME)
        self.await_start(times)


def replace(path, text):
    """Replaces a file in one step. Only its owner may read it."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.rename(path)


class Clients:
    """The clients. They use the current two servers, token and authorities."""

    def __init__(self, ports, token, trust):
        self.ports, self.token, self.trust = ports, token, trust
        self.acknowledged = collections.defaultdict(list)
        self.refused = collections.Counter()
        self.longest = 0.0
        self.ended = False

    async def record(self, run_id, record_id, number):
        begun = time.monotonic()
        for attempt in range(number, 1 << 30):
            assert time.monotonic() - begun < RECORD_WAIT, f"{record_id} is not acknowledged: {self.refused}"
            connection = None
            try:
                context = ssl.create_default_context(cafile=self.trust)
                port = self.ports[attempt % 2]
                connection = await asyncio.wait_for(Connection.open(port, context, self.token), 10)
                asked = connection.ask("POST", f"/v1/runs/{run_id}/records?deadline_ms=10000", turn(run_id, record_id, "x"))
                status, body = await asyncio.wait_for(asked, 20)
                if status == 200:
                    break
                assert status in (401, 429, 503), body
                self.refused[status] += 1
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                self.refused[type(error).__name__] += 1
            finally:
                if connection:
                    connection.close()
            await asyncio.sleep(0.05)
        self.longest = max(self.longest, time.monotonic() - begun)

    async def work(self, run_id):
        number = 0
        while not self.ended:
            await self.record(run_id, f"{run_id}-{number}", number)
            self.acknowledged[run_id].append(f"{run_id}-{number}")
            number += 1

    async def step(self, what, change, load):
        """Makes a change during the load, and awaits records that began after it."""
        before, begun = self.count(), time.monotonic()
        self.refused, self.longest = collections.Counter(), 0.0
        if change:
            await asyncio.to_thread(change)
        made = time.monotonic() - begun
        goal = {run_id: len(done) + EACH for run_id, done in self.acknowledged.items()}
        while any(len(self.acknowledged[run_id]) < least for run_id, least in goal.items()):
            failed = [task for task in load if task.done()]
            if failed:
                await failed[0]
            assert time.monotonic() - begun < RECORD_WAIT, f"{what}: the load does not continue"
            await asyncio.sleep(0.05)
        refused = ", ".join(f"{why}: {count}" for why, count in sorted(self.refused.items(), key=str)) or "nothing"
        print(f"{what:74}{made:7.1f}{self.count() - before:9}{self.longest:10.2f}    {refused}", flush=True)

    def count(self):
        return sum(map(len, self.acknowledged.values()))


async def found(port, trust, token, run_id):
    """The ids of a run's records."""
    connection = await Connection.open(port, ssl.create_default_context(cafile=trust), token)
    ids, cursor = [], ""
    while True:
        status, body = await connection.ask("GET", f"/v1/runs/{run_id}/records?limit=1000{cursor}")
        assert status == 200, body
        page = json.loads(body)
        ids += [line["record_id"] for line in page["records"]]
        if not page["next_cursor"]:
            connection.close()
            return ids
        cursor = f"&cursor={page['next_cursor']}"


async def rotate(folder, broker, number):
    secrets, served = folder / "secrets", folder / "served"
    properties, password = served / "kafka.properties", served / "kafka-password"
    replace(password, "old-canary")
    replace(properties, f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=runlog\n"
                        f"sasl.password_file={password}\nssl.ca.location={secrets}/ca.pem\n")
    for name in ("runlog.pem", "runlog.key"):
        replace(served / name, (secrets / name).read_text())
    token = create_token(served, "agent", "append,read_meta", "*")

    def start(name):
        return Server(folder / name, "--brokers", f"127.0.0.1:{broker.port}", "--partitions", "4", "--kafka-properties", properties,
                      "--tls-cert", served / "runlog.pem", "--tls-key", served / "runlog.key", "--tokens", served / "tokens.json")

    servers = [start("a"), start("b")]
    clients = Clients([server.port for server in servers], token, str(secrets / "ca.pem"))
    runs = [f"run-{index}" for index in range(number)]
    load = [asyncio.create_task(clients.work(run_id)) for run_id in runs]

    def restart(index, name):
        def change():
            assert servers[index].end() == 0
            servers[index] = start(name)
            clients.ports[index] = servers[index].port

        return change

    def hang_up():
        for server in servers:
            server.process.send_signal(signal.SIGHUP)

    def certificate():
        other = folder / "other"
        make_secrets(other)
        replace(served / "both.pem", (secrets / "ca.pem").read_text() + (other / "ca.pem").read_text())
        clients.trust = str(served / "both.pem")
        for name in ("runlog.pem", "runlog.key"):
            replace(served / name, (other / name).read_text())
        hang_up()
        clients.trust = str(other / "ca.pem")

    def second_token():
        clients.token = create_token(served, "agent", "append,read_meta", "*")

    def first_token():
        identity = hashlib.sha256(token.encode()).hexdigest()[:12]
        run(RUNLOG, "--json", "--quiet", "token", "revoke", "--yes", "--tokens", served / "tokens.json", identity)
        hang_up()

    def lose_connections():
        broker.restart(2)
        replace(password, "new-canary")
        before = clients.count()
        time.sleep(OUTAGE)
        assert clients.count() == before, "a server with the old password appends"
        print(f"{'the broker starts again: servers with the old password append nothing':74}{OUTAGE:7.1f}{0:9}", flush=True)

    try:
        print(f"{'':74}{'seconds':>7}{'records':>9}{'longest s':>10}    refused", flush=True)
        await asyncio.sleep(1)
        await clients.step("nothing changes", None, load)
        await clients.step("the password changes in Kafka", lambda: broker.set_password("new-canary"), load)
        await asyncio.to_thread(lose_connections)
        await clients.step("the first server starts again", restart(0, "a"), load)
        await clients.step("the second server starts again", restart(1, "b"), load)
        await clients.step("the broker starts again: all connections are new", lambda: broker.restart(3), load)
        await clients.step("the servers have a certificate of another authority", certificate, load)
        await clients.step("clients have a second token", second_token, load)
        await clients.step("the first token is revoked", first_token, load)
        clients.ended = True
        await asyncio.gather(*load)
        old = await Connection.open(servers[0].port, ssl.create_default_context(cafile=clients.trust), token)
        assert (await old.ask("GET", "/v1/runs"))[0] == 401, "the first token"
        old.close()
        lost = doubled = more = 0
        for server in servers:
            for run_id in runs:
                there = collections.Counter(await found(server.port, clients.trust, clients.token, run_id))
                lost += sum(record not in there for record in clients.acknowledged[run_id])
                doubled += sum(count > 1 for count in there.values())
                more += len(set(there) - set(clients.acknowledged[run_id]))
        said = "".join((folder / name / "errors").read_text() for name in ("a", "b"))
        assert "canary" not in said, "a password is in a log"
        print(f"{clients.count()} records acknowledged; lost {lost}, doubled {doubled}, not acknowledged {more}, by both servers")
        return lost + doubled + more == 0
    finally:
        clients.ended = True
        for server in servers:
            server.process.kill()


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-rotation-"))
    try:
        make_secrets(folder / "secrets")
        (folder / "served").mkdir(mode=0o700)
        broker = Broker(folder / "secrets", free_port())
        broker.set_password("old-canary")
        holds = asyncio.run(rotate(folder, broker, number))
    except AssertionError as failure:
        print(f"BROKEN: {failure}", flush=True)
        holds = False
    finally:
        subprocess.run(["docker", "rm", "-f", "-v", NAME], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not holds)


main()
