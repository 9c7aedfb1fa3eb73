"""An airline that kills its customer on request, for the tests of `agent.py`."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest_plugins = ["runlog.pytest_plugin"]


class Airline:
    """Books and takes payments. A request named in `deadly` is served, and then kills the process that sent it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.bookings: dict[str, str] = {}
        self.deadly: set[str] = set()
        self.customer: subprocess.Popen[str] | None = None
        airline = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                what = self.path.strip("/")
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(airline.serve(what, body)).encode()
                if what in airline.deadly and airline.customer is not None:
                    airline.deadly.discard(what)
                    airline.customer.kill()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, what: str, body: dict[str, str]) -> dict[str, str]:
        self.requests.append(what)
        if what == "pay":
            return {"paid": body["booking"]}
        booking = self.bookings.setdefault(body["key"], f"B-{1009 + len(self.bookings)}")
        return {"booking": booking}


@pytest.fixture
def airline() -> Iterator[Airline]:
    airline = Airline()
    yield airline
    airline.server.shutdown()
    airline.server.server_close()


class Agents:
    """Starts the agent on the test's journal."""

    def __init__(self, url: str, airline: Airline) -> None:
        self.airline = airline
        address = f"http://127.0.0.1:{airline.server.server_address[1]}"
        self.environment = {**os.environ, "RUNLOG_SERVER": url, "AIRLINE": address}

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Runs the agent. Returns its exit code, stdout and stderr."""
        program = [sys.executable, str(Path(__file__).with_name("agent.py")), *arguments]
        process = subprocess.Popen(
            program, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.airline.customer = process
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def agents(runlog_journal, airline: Airline) -> Agents:
    return Agents(runlog_journal.url, airline)
