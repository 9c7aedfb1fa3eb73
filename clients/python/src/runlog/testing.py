"""A journal for tests: the server as a process of its own, on an empty folder, gone when the test ends.

    def test_an_agent_that_is_killed(runlog_journal):                # pytest_plugins = ["runlog.pytest_plugin"]
        with runlog.sync.connect(runlog_journal.url) as rl: …

The binary is the file that `RUNLOG_BIN` names, or else `runlog` on the `PATH`, or else that of the package `runlog-server`. It must
be trusted: it is run as it is.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from .errors import Unavailable, Usage

STOP_WAIT = 20.0
"""Seconds that a server may take to end in order."""
_PR_SET_PDEATHSIG = 1


def find_binary() -> str:
    """The `runlog` command."""
    named = os.environ.get("RUNLOG_BIN")
    found = shutil.which(named or "runlog") or (None if named else _packaged())
    if found is None:
        why = (
            f"RUNLOG_BIN={named} is no program"
            if named
            else "there is no `runlog` on the PATH, and no package runlog-server"
        )
        raise Usage(f"{why}: build Runlog (`make build`), and set RUNLOG_BIN to bin/runlog")
    return found


def _packaged() -> str | None:
    """The command in the package `runlog-server`, which is not a dependency."""
    try:
        package = importlib.import_module("runlog_server")
    except ModuleNotFoundError:
        return None
    return str(package.binary())


def _die_with_parent() -> None:
    """Only on Linux. Elsewhere a server outlives a test process that was killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Journal:
    """A server on a journal of its own.

    Whether it listens is only waited for when `url` is asked for, so that the next one can start while a test runs."""

    def __init__(self, binary: str | None = None) -> None:
        self._binary = binary or find_binary()
        self._folder = Path(tempfile.mkdtemp(prefix="runlog-journal-"))
        self._process: subprocess.Popen[str] | None = None
        self._url: str | None = None
        self.start()

    @property
    def url(self) -> str:
        """The server's URL. It stays the same when the server is killed and started again."""
        if self._url is None:
            self._url = self._listening()
        return self._url

    @property
    def log(self) -> str:
        """What the server has written to its log."""
        return (self._folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts the server, on what the journal has. Nothing happens if it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        address = self._url.removeprefix("http://") if self._url else "127.0.0.1:0"
        command = [self._binary, "serve", "--local", "--data", str(self._folder / "data"), "--listen", address]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Between fork and exec of a process with threads only this much is safe: it calls into libc alone.
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        if self._url is not None:
            self._listening()

    def _listening(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"the server did not start: {self.log[-2000:]}")
        return str(json.loads(line)["listening"])

    def kill(self) -> None:
        """Kills the server, as `kill -9` does. The journal stays; `start` goes on with it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the server in order. The journal stays."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """Kills the server and removes the journal."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journals:
    """Empty journals, one after the other. The next one starts while one is used, so that it is there in milliseconds."""

    def __init__(self, binary: str | None = None) -> None:
        self._binary = binary or find_binary()
        self._next: Journal | None = Journal(self._binary)

    @contextmanager
    def journal(self) -> Generator[Journal, None, None]:
        """An empty journal, which listens."""
        taken, self._next = self._next or Journal(self._binary), None
        with taken:
            _ = taken.url
            self._next = Journal(self._binary)
            yield taken

    def close(self) -> None:
        """Removes the one that is ready."""
        ready, self._next = self._next, None
        if ready is not None:
            ready.close()
