"""A server for all tests, and helpers that they share."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("RUNLOG_BIN", TOP / "bin" / "runlog"))
ENVIRONMENT = {**os.environ, "LD_LIBRARY_PATH": f"{BINARY.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


class Server:
    """A `runlog serve` process; by default on a local log."""

    def __init__(self, data: Path, *options: str, log: Sequence[str] = ("--local",)) -> None:
        command = [BINARY, "serve", *log, "--data", data, "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["listening"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the `runlog` command against a server."""
    return subprocess.run(
        [BINARY, "--server", url, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def create_token(file: Path, *scopes: str) -> str:
    """Adds a token for all runs to a token file."""
    of_token = ("--tokens", str(file), "--principal", "-".join(scopes), "--scope", ",".join(scopes), "--runs", "*")
    made = command("http://unused.example", "token", "create", *of_token)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("journal"))
    yield running
    # After all tests the indices match the log.
    verified = command(running.url, "verify", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    running.stop()


@pytest.fixture(scope="session")
def url_of_bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the feature `bases`: it records that a call is safe to repeat."""
    running = Server(tmp_path_factory.mktemp("bases"), "--write-schema", "3")
    yield running.url
    running.stop()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def run_id() -> str:
    return f"run-{uuid.uuid4()}"


@pytest.fixture
def prefix() -> str:
    """A prefix of threads that no other test has."""
    return f"{uuid.uuid4()}/"


@pytest.fixture
def config() -> dict[str, dict[str, str]]:
    """The config of a LangGraph thread."""
    return {"configurable": {"thread_id": "t 1"}}
