"""The processes that are killed: the server, and workers in Python, which are forked, as an interpreter takes long to start."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from conftest import BINARY, ENVIRONMENT

DONE, RECONCILE, BROKEN, UNAVAILABLE, FENCED = 0, 3, 4, 5, 6
"""How a worker ends by itself."""
STEP = 0.002
STUCK_AFTER = 60.0
_PR_SET_PDEATHSIG = 1


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a file. Linux ends the write of a killed process at a page boundary: `read_lines` ignores the rest."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, b"\n" + json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of `append_line`, without those whose writer was killed before the end."""
    lines = []
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            lines.append(json.loads(line))
    return lines


class Forked:
    """A worker in Python. `work` returns how it ended; its exceptions go to the file `complaints`."""

    language = "Python"

    def __init__(self, work: Callable[[], int], complaints: Path) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = BROKEN
            try:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                code = work()
            except BaseException:
                with complaints.open("a") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(code)

    def ended(self) -> int | None:
        """Its exit code, once it has ended without a kill."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> int:
        """`kill -9`. Returns how it ended: it may have been faster."""
        os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Server:
    """`runlog serve` on a local journal, at the same address after each start."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, (folder / "server.log").open("ab")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None
        self.start()
        self.wait()

    def start(self) -> None:
        """Starts it. It listens a little later."""
        address = f"127.0.0.1:{self.port}"
        command = [BINARY, "serve", "--local", "--data", self._folder / "journal", "--listen", address]
        self._process = subprocess.Popen(command, env=ENVIRONMENT, stdout=self._log, stderr=self._log, text=True)

    def is_up(self) -> bool:
        """Whether it listens. Raises if it ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"the server ended with {self._process.returncode}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait(self) -> None:
        """Waits until it listens."""
        ends = time.monotonic() + STUCK_AFTER
        while not self.is_up():
            assert time.monotonic() < ends, "the server does not listen"
            time.sleep(STEP)

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it in order; more than once is as good as once."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STUCK_AFTER)
        self._log.close()
