#!/usr/bin/env python3
"""What TLS and tokens cost: a server with both beside one without, asked in turn.

    tests/python/tls_cost.py [ROUNDS]

bin/runlog, or what RUNLOG_BIN names, serves two local logs on this machine. A round (of 10) asks each of the two, the other one first
each time: appends of 500 bytes and lookups one after another over one connection, lookups over a new connection each, lookups over 16
connections at once, and appends by `runlog publish`. The client is the same for both, and its own part of TLS is in its figures; the server's CPU
time is not. Prints the medians of the rounds, and the median of the rounds' ratios with their least and greatest; of CPU time means.
"""

import asyncio
import json
import pathlib
import shutil
import ssl
import statistics
import sys
import tempfile
import time

from journal import RUNLOG, Connection, Server, create_token, make_secrets, percentile, run, turn

SEQUENTIAL, FRESH, CONNECTIONS, EACH, PUBLISHED = 200, 100, 16, 100, 2000
LOOKUP = "/v1/runs/asked/lookup?tool=book&args=%7B%7D"


class Side:
    """One of the two servers."""

    def __init__(self, folder, secrets, token):
        flags = ["--tls-cert", secrets / "runlog.pem", "--tls-key", secrets / "runlog.key", "--tokens", secrets / "tokens.json"]
        self.server = Server(folder, "--local", *(flags if token else []))
        self.token, self.ca, self.folder = token, secrets / "ca.pem", folder
        self.trust = ssl.create_default_context(cafile=self.ca) if token else None

    def open(self):
        return Connection.open(self.server.port, self.trust, self.token)

    async def prepare(self):
        connection = await self.open()
        await connection.request_call("asked")
        connection.close()

    async def timed(self, figures, name, number, ask):
        """Milliseconds of requests one after another, and the server's microseconds of CPU time for each."""
        times, cpu = [], self.server.cpu_seconds()
        for index in range(number):
            begun = time.perf_counter()
            status, body = await ask(index)
            times.append((time.perf_counter() - begun) * 1000)
            assert status == 200, body
        figures[f"{name}, p50 ms"] = percentile(times, 0.5)
        figures[f"{name}, p99 ms"] = percentile(times, 0.99)
        figures[f"{name}, CPU us"] = (self.server.cpu_seconds() - cpu) / number * 1e6

    async def asked(self, number):
        """A round's figures."""
        figures, kept = {}, await self.open()
        run_id = f"round-{number}"

        def append(index):
            return kept.ask("POST", f"/v1/runs/{run_id}/records", turn(run_id, f"r-{index}", "x" * 500))

        async def fresh(_):
            connection = await self.open()
            answer = await connection.ask("GET", LOOKUP)
            connection.close()
            return answer

        await self.timed(figures, "append", SEQUENTIAL, append)
        await self.timed(figures, "lookup", SEQUENTIAL, lambda _: kept.ask("GET", LOOKUP))
        await self.timed(figures, "lookup, new connection", FRESH, fresh)
        kept.close()

        async def repeat(connection):
            for _ in range(EACH):
                status, body = await connection.ask("GET", LOOKUP)
                assert status == 200, body

        connections = [await self.open() for _ in range(CONNECTIONS)]
        cpu, begun = self.server.cpu_seconds(), time.perf_counter()
        await asyncio.gather(*map(repeat, connections))
        spent, cpu = time.perf_counter() - begun, self.server.cpu_seconds() - cpu
        for connection in connections:
            connection.close()
        figures[f"lookup, {CONNECTIONS} connections, a second"] = CONNECTIONS * EACH / spent
        figures[f"lookup, {CONNECTIONS} connections, CPU us"] = cpu / (CONNECTIONS * EACH) * 1e6
        return figures

    def publish(self, number, figures):
        lines = self.folder / "lines"
        run_id = f"published-{number}"
        lines.write_text("".join(json.dumps(turn(run_id, f"r-{index}", "x" * 500)) + "\n" for index in range(PUBLISHED)))
        variables = {"RUNLOG_SERVER": self.server.url, "RUNLOG_CA": str(self.ca)}
        if self.token:
            variables["RUNLOG_TOKEN"] = self.token
        cpu, begun = self.server.cpu_seconds(), time.perf_counter()
        run(RUNLOG, "--json", "--quiet", "publish", lines, **variables)
        spent, cpu = time.perf_counter() - begun, self.server.cpu_seconds() - cpu
        figures["publish, records a second"] = PUBLISHED / spent
        figures["publish, CPU us"] = cpu / PUBLISHED * 1e6


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-tls-cost-"))
    sides = {}
    try:
        secrets = folder / "secrets"
        make_secrets(secrets)
        token = create_token(secrets, "agent", "append,read_meta,read_content", "*")
        # What tokens cost, and not what they limit.
        tokens = secrets / "tokens.json"
        unlimited = {"requests_per_second": 10**9, "body_bytes_per_second": 10**12}
        tokens.write_text(json.dumps({**json.loads(tokens.read_text()), "limits": {"*": unlimited}}))
        sides = {"off": Side(folder / "off", secrets, None), "on": Side(folder / "on", secrets, token)}
        for side in sides.values():
            asyncio.run(side.prepare())
        found = {"off": [], "on": []}
        # The first one warms both up.
        for number in range(rounds + 1):
            for name in ("off", "on") if number % 2 else ("on", "off"):
                figures = asyncio.run(sides[name].asked(number))
                sides[name].publish(number, figures)
                found[name] += [figures] if number else []
        print(f"{'':42}{'off':>10}{'on':>10}{'ratio':>8}    least to greatest, {rounds} rounds")
        for what in found["off"][0]:
            off, on = ([figures[what] for figures in found[name]] for name in ("off", "on"))
            if what.endswith("CPU us"):
                # A tick of the clock is too long for a round's.
                off, on = statistics.mean(off), statistics.mean(on)
                print(f"{what:42}{off:10.0f}{on:10.0f}{on / off:8.2f}    means")
                continue
            ratios = [b / a for a, b in zip(off, on)]
            print(f"{what:42}{statistics.median(off):10.3g}{statistics.median(on):10.3g}{statistics.median(ratios):8.2f}"
                  f"    {min(ratios):.2f} to {max(ratios):.2f}")
    finally:
        for side in sides.values():
            side.server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


main()
