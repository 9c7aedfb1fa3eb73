"""A journal for tests: a server process on an empty folder, which is removed when the test ends.

    def test_an_agent_that_is_killed(runlog_journal):                # pytest_plugins = ["runlog.pytest_plugin"]
        with runlog.sync.connect(runlog_journal.url) as rl: …

The binary is the file that `RUNLOG_BIN` names, else `runlog` on the `PATH`, else the binary of the package
`runlog-server`. It must be trusted, since it is executed.
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
"""Seconds that an orderly shutdown of a server may take."""
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
    """Ends the server with its parent, on Linux only. Elsewhere a server outlives a killed test process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Journal:
    """A server with a separate journal.

    Only `url` waits until the server listens, so that the next journal can start while a test runs."""

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
        """The content of the server's log."""
        return (self._folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts the server with the existing journal, unless it runs."""
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
                # Safe between fork and exec in a process with threads, since it only calls libc.
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
        """Kills the server, as `kill -9` does. The journal stays; `start` continues with it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shuts the server down. The journal stays."""
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
    """Empty journals, one after the other. The next journal starts while a test uses one, so it is ready in
    milliseconds."""

    def __init__(self, binary: str | None = None) -> None:
        self._binary = binary or find_binary()
        self._next: Journal | None = Journal(self._binary)

    @contextmanager
    def journal(self) -> Generator[Journal, None, None]:
        """Returns an empty journal that listens."""
        taken, self._next = self._next or Journal(self._binary), None
        with taken:
            _ = taken.url
            self._next = Journal(self._binary)
            yield taken

    def close(self) -> None:
        """Removes the prepared journal."""
        ready, self._next = self._next, None
        if ready is not None:
            ready.close()
