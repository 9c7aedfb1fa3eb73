"""The demo's desk, `runlog demo-desk`, as its customers and the driver see it: a line of JSON, and its answer."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from conftest import BINARY, ENVIRONMENT

WAIT = 30.0
_CLOSE_WAIT = "08"


def encode(request: dict[str, Any]) -> bytes:
    """A request's line."""
    return json.dumps(request).encode() + b"\n"


async def ask(port: int, request: dict[str, Any]) -> dict[str, Any] | None:
    """The desk's answer. `None` if there is none: it may have done it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(request))
        line = await asyncio.wait_for(reader.readline(), WAIT)
        return json.loads(line) if line else None
    finally:
        writer.close()


class Held:
    """A booking that the desk is to hold back, once."""

    def __init__(self, desk: Desk, customer: str, moment: str) -> None:
        self._port, self._customer = desk.port, customer
        self._said(self._open({"op": "hold", "customer": customer, "moment": moment}))
        self._held = self._open({"op": "held", "customer": customer})
        desk.waiting.add(self._held.getsockname()[1])

    def reached(self) -> bool:
        """Whether the booking is held now."""
        return bool(select.select([self._held], [], [], 0)[0])

    def wait_for_hang_up(self) -> None:
        """Waits until the desk saw its customer hang up: nothing more comes of the booking."""
        self._said(self._open({"op": "hung_up", "customer": self._customer}))

    def close(self) -> None:
        """Stops waiting."""
        self._held.close()

    def _open(self, request: dict[str, Any]) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), WAIT)
        connection.sendall(encode(request))
        return connection

    def _said(self, connection: socket.socket) -> None:
        with connection:
            assert connection.makefile().readline()


class Desk:
    """A desk process."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.waiting: set[int] = set()
        """Our ports that wait for a booking to be held, as the desk does until it is."""
        self.process = subprocess.Popen(
            [BINARY, "--json", "demo-desk", "--ledger", ledger],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["listening"]
        self.port = int(self.address.rsplit(":", 1)[1])

    def of(self, customer: str) -> list[dict[str, Any]]:
        """All bookings of a customer, once the requests of its dead processes are settled."""
        ends = time.monotonic() + WAIT
        while self._has_dead_customers():
            assert time.monotonic() < ends, "the desk does not settle the requests of dead processes"
            time.sleep(0.002)
        with socket.create_connection(("127.0.0.1", self.port), WAIT) as connection:
            connection.sendall(encode({"op": "of", "customer": customer}))
            return json.loads(connection.makefile().readline())["ok"]

    def _has_dead_customers(self) -> bool:
        """Whether a connection that its other end closed is not done with."""
        here = f":{self.port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if local.endswith(here) and state == _CLOSE_WAIT and int(remote[-4:], 16) not in self.waiting:
                return True
        return False

    def bookings(self) -> list[dict[str, Any]]:
        """The ledger, from its file."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def stop(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(WAIT)
        self.process.stdout.close()
