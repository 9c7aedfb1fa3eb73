#!/usr/bin/env python3
"""Attacks a server beside an honest client, and measures the latency and failures of the honest client.

    tests/python/hostile.py [SECONDS [ATTACK...]]

SECONDS is how long each attack lasts (15); ATTACK names some of them. bin/runlog, or RUNLOG_BIN, serves a local log with TLS
and tokens. Attackers have a token for runs of their own and, where an attack needs it, one of an auditor; they run at a low
priority, since elsewhere they have a machine of their own. The honest client appends, looks a call up and appends 1 MiB
all the time, over a connection that it keeps and over a new one in turn; it repeats what is refused as overloaded.

Each attack meets a server that just started. Prints a table. Exits 1 where the claim is broken: p99 of honest appends (500 bytes, or
1 MiB) over 1 s, a request that failed for 30 s, or more than 1 GiB of memory.
"""

import asyncio
import collections
import itertools
import json
import multiprocessing
import os
import pathlib
import resource
import shutil
import ssl
import sys
import tempfile
import time
from functools import partial

from journal import Connection, Server, create_token, make_secrets, percentile, turn

# The claim: seconds, KiB.
APPEND_MAX, RSS_MAX = 1.0, 1 << 20
# Memory at which an attack ends, and a server that exceeds it at once ends itself, to protect this machine; KiB.
RSS_STOP, RSS_END = 4 << 20, 8 << 20
# How long one honest request may take, with its repetitions.
HONEST_WAIT = 30
OWN = "evil%2Fbig"
MANY_SECONDS = 300_000


class Target:
    """The server's address and the credentials that an attacker has."""

    def __init__(self, port, token, auditor, until, counts):
        self.port, self.token, self.auditor, self.until, self.counts = port, token, auditor, until, counts
        # An attacker does not check the server's certificate.
        self.trust = ssl.create_default_context()
        self.trust.check_hostname, self.trust.verify_mode = False, ssl.CERT_NONE

    def left(self):
        return self.until - time.monotonic()

    async def open(self, token=None):
        connection = await asyncio.wait_for(Connection.open(self.port, self.trust, token or self.token), max(1, self.left()))
        self.counts["connections"] += 1
        return connection

    async def many(self, number, each):
        """Runs `number` clients at a time. Each of them begins again when it is refused or disconnected."""

        async def one(index):
            await asyncio.sleep(index / number)
            while self.left() > 0:
                try:
                    await asyncio.wait_for(each(index), max(0.1, self.left()))
                except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
                    self.counts["ended"] += 1
                    await asyncio.sleep(0.2)

        await asyncio.gather(*(one(index) for index in range(number)))

    async def asked(self, connection, *request):
        status, _ = await connection.ask(*request)
        self.counts[status] += 1
        return status


async def closed(connection):
    """Returns when the server closes the connection, or answers; the status."""
    status = (await connection.begin())[0]
    connection.close()
    return status


async def slow_heads(target):
    async def each(_):
        connection = await target.open()
        connection.writer.write(b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n")
        while not connection.reader.at_eof():
            connection.writer.write(b"X-Header: x\r\n")
            await connection.writer.drain()
            await asyncio.sleep(2)
        connection.close()

    await target.many(1500, each)


async def silent_handshakes(target):
    async def each(index):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        target.counts["connections"] += 1
        if index % 2:
            writer.write(bytes([0x16, 3, 1, 2, 0, 1]))
        await reader.read()
        writer.close()

    await target.many(3000, each)


async def idle_connections(target):
    """Opens all connections that the server allows, and keeps each with requests that need no token."""

    async def each(_):
        connection = await target.open()
        while True:
            await target.asked(connection, "GET", "/healthz")
            await asyncio.sleep(7)

    await target.many(4500, each)


def bodies(number, path, text, share=1.0):
    """Sends a share of a body, and awaits the answer or the end of the connection."""

    async def each(target, index):
        connection = await target.open()
        body = json.dumps(text(index)).encode()
        head = connection.head("POST", f"/v1/runs/evil%2F{index}/{path}", len(body))
        connection.writer.write(head + body[: int(len(body) * share)])
        target.counts[await closed(connection)] += 1

    return lambda target: target.many(number, partial(each, target))


async def declared_bodies(target):
    """Declares bodies over the server's limit of memory. Sends no byte, or just enough bytes not to be too slow."""

    async def each(index):
        connection = await target.open()
        length = 50 << 20
        connection.writer.write(connection.head("POST", f"/v1/runs/evil%2F{index}/records?deadline_ms={MANY_SECONDS}", length))
        answer = asyncio.create_task(closed(connection))
        while index % 2 and not answer.done():
            connection.writer.write(b" " * (80 << 10))
            await connection.writer.drain()
            await asyncio.sleep(1)
        target.counts[await answer] += 1

    await target.many(32, each)


def unread(number, path):
    """Sends a request and does not read the answer."""

    async def each(target, _):
        connection = await target.open()
        connection.writer.transport.pause_reading()
        await connection.send("GET", path)
        # Without reads, only a write detects that the connection was closed.
        while True:
            await asyncio.sleep(1)
            connection.writer.write(b"\r\n")
            await connection.writer.drain()

    return lambda target: target.many(number, partial(each, target))


def repeated(number, request, token=lambda target: target.token):
    """Sends one request after the other, over one connection per client."""

    async def each(target, index):
        connection = await target.open(token(target))
        for count in itertools.count():
            await target.asked(connection, *request(index, count))

    return lambda target: target.many(number, partial(each, target))


def page(index, _):
    return "GET", f"/v1/runs/{OWN}/records?raw={'true' if index % 2 else 'false'}&limit=1000"


def audit(index, _):
    """Starts something large: a verification, an examination, a list of dead letters."""
    return [("POST", "/v1/verify", {}), ("GET", "/v1/doctor"), ("GET", "/v1/dead-letters"), ("GET", "/metrics")][index % 4]


def append(index, count):
    return "POST", f"/v1/runs/evil%2F{index}/records", turn(f"evil/{index}", f"{os.getpid()}-{count}", "x" * 500)


def new_run(index, count):
    return "POST", f"/v1/runs/evil%2F{os.getpid()}-{index}-{count}/claims", {"claimed_by": "evil"}


ATTACKS = {
    "slow heads": slow_heads,
    "silent handshakes": silent_handshakes,
    "idle connections": idle_connections,
    "half-sent bodies": bodies(300, "records", lambda index: turn(f"evil/{index}", "r", "x" * 60_000), 0.5),
    "declared bodies": declared_bodies,
    "bodies of claims": bodies(24, "claims", lambda _: {"claimed_by": "x" * (15 << 20)}),
    "unread tails": unread(128, f"/v1/runs/{OWN}/tail?raw=true"),
    "unread tails of all runs": unread(64, "/v1/tail?raw=true"),
    "unread pages": unread(256, f"/v1/runs/{OWN}/records?raw=true&limit=1000"),
    "large pages": repeated(32, page),
    "verify, doctor, dead letters": repeated(32, audit, lambda target: target.auditor),
    "appends": repeated(64, append),
    "claims of new runs": repeated(32, new_run),
    "wrong tokens": repeated(64, lambda *_: ("GET", "/v1/runs"), lambda _: "runlog_" + "0" * 64),
}


def attacker(attack, port, token, auditor, seconds, pipe):
    """A process of its own."""
    os.nice(10)
    counts = collections.Counter()
    target = Target(port, token, auditor, time.monotonic() + seconds, counts)
    # Ignores exceptions of tasks that are no longer awaited: the attacks drop connections on purpose.
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        loop.run_until_complete(asyncio.wait_for(ATTACKS[attack](target), seconds + 1))
    except asyncio.TimeoutError:
        pass
    pipe.send(dict(counts))
    pipe.close()
    os._exit(0)


class Honest:
    """The honest client, in a process of its own; a line for each answer."""

    def __init__(self, port, trust, token, path, prefix):
        self.path, self.prefix = path, prefix
        path.touch()
        self.process = multiprocessing.Process(target=self.run, args=(port, trust, token), daemon=True)
        self.process.start()

    def run(self, port, trust, token):
        asyncio.run(self.work(port, ssl.create_default_context(cafile=trust), token))

    async def work(self, port, trust, token):
        run, kept = "honest%2Fa", None
        seen = open(self.path, "a", buffering=1)

        async def answered(kind, fresh, *request):
            """The seconds until a successful answer."""
            nonlocal kept
            begun = time.monotonic()
            refused = 0
            while True:
                connection = None
                try:
                    async with asyncio.timeout(HONEST_WAIT - (time.monotonic() - begun)):
                        if fresh or kept is None:
                            connection = await Connection.open(port, trust, token)
                            if not fresh:
                                kept = connection
                        status, body = await (connection or kept).ask(*request)
                    if fresh:
                        connection.close()
                    if status == 200:
                        break
                except (OSError, EOFError, asyncio.TimeoutError) as error:
                    status, body = type(error).__name__, b""
                    kept = None if not fresh else kept
                refused += 1
                if time.monotonic() - begun > HONEST_WAIT - 1:
                    break
                await asyncio.sleep(1 if status in (429, 503) else 0.1)
            line = [kind, fresh, time.monotonic() - begun, status == 200, refused, str(status), time.monotonic()]
            seen.write(json.dumps(line) + "\n")

        for number in range(1 << 30):
            fresh = number % 2 == 1
            record = turn("honest/a", f"{self.prefix}-{number}", "x" * 500)
            await answered("append", fresh, "POST", f"/v1/runs/{run}/records", record)
            await answered("lookup", fresh, "GET", f"/v1/runs/{run}/lookup?tool=book&args=%7B%7D")
            if number % 20 == 0:
                large = turn("honest/a", f"{self.prefix}-large-{number}", "x" * (1 << 20))
                await answered("large", fresh, "POST", f"/v1/runs/{run}/records", large)
            await asyncio.sleep(0.02)

    def begun(self):
        """Waits for its first answers."""
        while len(self.since(0)[0]) < 10:
            time.sleep(0.05)

    def since(self, offset):
        """Its findings since a position in its file, and the current position."""
        with open(self.path) as file:
            file.seek(offset)
            lines = file.read()
            return [json.loads(line) for line in lines.splitlines()], file.tell()


def measure(server, honest, names, tokens, seconds):
    """Measures the honest client and the server for `seconds` during these attacks. Returns a row of the table."""
    offset = honest.since(0)[1]
    pipes = []
    for name in names:
        receive, send = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=attacker, args=(name, server.port, *tokens, seconds, send), daemon=True)
        process.start()
        send.close()
        pipes.append((process, receive))
    peak, until, cpu = collections.Counter(), time.monotonic() + seconds, server.cpu_seconds()
    stopped = died = False
    while time.monotonic() < until and not stopped:
        # A flag: the honest client may have to wait until the attack is over.
        if (died := server.process.poll() is not None):
            break
        for what, value in (("rss", server.status("VmRSS")), ("threads", server.status("Threads")), ("fds", server.descriptors())):
            peak[what] = max(peak[what], value)
        stopped = peak["rss"] > RSS_STOP
        time.sleep(0.05)
    cpu = 0 if died else server.cpu_seconds() - cpu
    counts = collections.Counter()
    for process, receive in pipes:
        if stopped:
            process.kill()
        elif receive.poll(10):
            try:
                counts.update(receive.recv())
            except EOFError:
                counts["died"] += 1
        process.kill()
        process.join()
    # Waits until the requests sent during the attack are answered.
    asked = time.monotonic()
    while not died:
        seen, _ = honest.since(offset)
        if (seen and seen[-1][6] > asked) or time.monotonic() - asked > HONEST_WAIT + 5:
            break
        time.sleep(0.05)
    seen, _ = honest.since(offset)
    return {"seen": seen, "peak": peak, "cpu": cpu / seconds, "counts": counts, "stopped": stopped, "died": died}


def of(row, kind):
    return [line[2] for line in row["seen"] if line[0] == kind]


def broken(row):
    """The parts of the claim that do not hold."""
    found = []
    if not of(row, "append") or percentile(of(row, "append"), 0.99) > APPEND_MAX:
        found.append("p99")
    if of(row, "large") and percentile(of(row, "large"), 0.99) > APPEND_MAX:
        found.append("1MiB")
    if any(not line[3] for line in row["seen"]):
        found.append("failed")
    if row["died"]:
        found.append("died")
    if row["peak"]["rss"] > RSS_MAX:
        found.append("memory")
    return found


HEAD = ["attack", "append p50", "p99 ms", "max", "lookup p50", "p99 ms", "1 MiB p50", "max ms", "n", "again", "failed", "RSS MiB",
        "fds", "threads", "CPU", "broken"]


def cells(name, row):
    def ms(kind, share):
        return f"{percentile(of(row, kind), share) * 1000:.1f}"

    seen, peak = row["seen"], row["peak"]
    return [name, ms("append", 0.5), ms("append", 0.99), ms("append", 1), ms("lookup", 0.5), ms("lookup", 0.99), ms("large", 0.5),
            ms("large", 1), str(len(seen)), str(sum(line[4] for line in seen)), str(sum(not line[3] for line in seen)),
            str(peak["rss"] >> 10) + ("+" if row["stopped"] else ""), str(peak["fds"]), str(peak["threads"]), f"{row['cpu']:.2f}",
            " ".join(broken(row)) or "no"]


def table(rows):
    lines = [HEAD, *(cells(name, row) for name, row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    for line in lines:
        print("  ".join(text.ljust(width) if column == 0 else text.rjust(width) for column, (text, width) in enumerate(zip(line, widths))))


async def seed(port, trust, token, honest):
    """Creates the attacker's run of 100 MiB, and a call of the honest client."""
    connection = await Connection.open(port, trust, token)
    for number in range(400):
        record = turn("evil/big", f"r-{number}", "x" * 250_000)
        # It is over the attacker's limit of bytes for some of the time.
        while (asked := await connection.ask("POST", f"/v1/runs/{OWN}/records", record))[0] == 429:
            await asyncio.sleep(1)
        assert asked[0] == 200, asked
    connection.close()
    connection = await Connection.open(port, trust, honest)
    await connection.request_call("honest/a")
    connection.close()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15
    names = sys.argv[2:] or [*ATTACKS]
    if unknown := set(names) - set(ATTACKS):
        sys.exit(f"{__doc__}\nno such attack: {unknown}; there are {', '.join(ATTACKS)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-hostile-"))
    rows, server = [], None
    try:
        secrets = folder / "secrets"
        make_secrets(secrets)
        evil = create_token(secrets, "evil", "append,read_meta,read_content", "evil/*")
        auditor = create_token(secrets, "auditor", "audit", "*")
        honest_token = create_token(secrets, "honest", "append,read_meta,read_content", "honest/*")
        trust = str(secrets / "ca.pem")

        def start():
            return Server(folder / "server", "--local", "--tls-cert", secrets / "runlog.pem", "--tls-key", secrets / "runlog.key",
                          "--tokens", secrets / "tokens.json", memory_max=RSS_END << 10)

        server = start()
        asyncio.run(seed(server.port, trust, evil, honest_token))
        server.end()

        def add(name, attacks, tokens):
            nonlocal server
            server = start()
            honest = Honest(server.port, trust, honest_token, folder / f"honest-{len(rows)}", f"{len(rows)}")
            honest.begun()
            rows.append((name, measure(server, honest, attacks, tokens, seconds)))
            honest.process.kill()
            server.process.kill()
            server.process.wait()
            _, row = rows[-1]
            did = ", ".join(f"{what}: {count}" for what, count in sorted(row["counts"].items(), key=str))
            print(f"{name}: {' '.join(broken(row)) or 'holds'} ({did})", flush=True)

        add("none", [], (None, None))
        for name in names:
            add(name, [name], (evil, auditor))
        if len(names) > 1:
            add("all, without tokens", names, (None, None))
            add("all, with tokens", names, (evil, auditor))
        print()
        table(rows)
    finally:
        if server:
            server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(any(broken(row) for _, row in rows))


if __name__ == "__main__":
    main()
