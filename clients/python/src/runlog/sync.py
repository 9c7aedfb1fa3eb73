"""Sync handles: `runlog.sync.connect`, `Runlog`, `Run`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

from ._api import Api
from ._drive import SyncDriver
from ._ends import Ends
from ._gate import Answer, Call
from ._handle import BaseRun, Recovery, recover
from ._http import SyncHttp, SyncTransport
from ._session import Session
from ._settings import Settings
from ._tool import current_run, tool
from .config import Config
from .errors import Usage


class Run(BaseRun):
    """A run that this process claimed. Its operations may be called from several threads.

    After an interrupted operation, the next operation settles its calls and records."""

    def __init__(self, driver: SyncDriver, session: Session, recovery: dict[str, Any]) -> None:
        super().__init__(session, recovery)
        self._driver = driver

    def call(
        self,
        tool: str,
        args: object,
        effect: Callable[[Call], Any],
        *,
        key: str | None = None,
        ends: Ends | None = None,
        unique: bool = False,
        repeatable: bool = False,
    ) -> Answer:
        """Runs `effect` unless the journal has the call's answer, and records its outcome.

        Without a key, a second call with the same arguments is another call. With `unique` it is the same call, for
        example because the arguments contain an id. An empty key raises `Usage`.

        With `repeatable` the effect may run any number of times, like a tool that only reads. If its process died, the
        call runs again without a key and without a decision; this requires the server feature `bases`.

        Raises `Invalid` for a part of `args` without JSON, and names its place. If a result cannot be recorded, it is
        returned, and the call ends without it: the same call then raises `ResultNotRecorded`.

        The effect did not run if this raises `ReconcileRequired`, `ResultNotRecorded`, `Fenced`, `MissingContent`,
        `Unavailable`, `Stale` or `Conflict` with `happened` `nothing` or `unknown`. Otherwise `happened` describes
        the state of its result. `Failed` is the recorded failure of the effect."""
        if inspect.iscoroutinefunction(effect):
            raise Usage(f"the effect of {tool} is an async function, the run is that of a plain connection")
        return self._driver.drive(self._call(tool, args, effect, key, ends, unique, repeatable))

    def turn(self, kind: str, content: object) -> None:
        """Records a message of the conversation; `kind` is `user`, `assistant`, …"""
        self._driver.drive(self._turn(kind, content))

    def checkpoint(self, messages: Sequence[object] = (), state: object = None, *, turn: int = 0) -> None:
        """Records the state of the loop. Pass all messages; only new ones are written.

        While calls are in flight, the checkpoint lists as unanswered every call that was answered since no call was
        in flight: a process that resumes there gets these answers from the journal once more. If no call is in
        flight, no call may be answered between collecting `messages` and `state` and the start of this method."""
        self._driver.drive(self._checkpoint(messages, state, turn))

    def batch(self, payloads: Sequence[object]) -> list[str]:
        """Appends 1 to 4096 records that are applied together or not at all. Returns their ids, in order.

        Each is a payload as `GET /openapi.json` describes it, such as `{"type": "conversation_turn", …}`. Other
        methods write calls and checkpoints. Raises `Conflict` if one record was refused; then all are refused."""
        return self._driver.drive(self._batch(payloads))

    def prune_checkpoints(self, before: int | None = None, *, preserve_latest_terminal: bool = False) -> None:
        """Hides checkpoints that cover less than `before` from answers; by default all except the last one.

        With `preserve_latest_terminal` the latest checkpoint after the run's end stays. Bytes stay in the log. The
        next checkpoint is written whole."""
        self._driver.drive(self._prune(before, preserve_latest_terminal))

    def end(self, status: str = "completed", reason: str = "") -> None:
        """Ends the run as `completed`, `failed` or `cancelled`.

        An ended run answers recorded calls, and accepts its last checkpoint and the same end again. Any other
        operation raises `Conflict`: no effect runs, and no record is appended."""
        self._driver.drive(self._end(status, reason))

    def leave(self) -> None:
        """Records the results that interrupted calls hold, if there are any and the server answers. Raises no `Error`."""
        self._driver.drive(self._session.leave())

    def reopen(self) -> None:
        """Settles failed or interrupted operations, as the next operation would.

        Raises `ClaimLost` or `Fenced` if another process has the run; the log then has held results as evidence."""
        self._driver.drive(self._session.reopen())


class Runlog:
    """A connection to a server. It belongs to one process."""

    def __init__(self, config: Config, transport: SyncTransport | None = None) -> None:
        self.config = config
        self._driver = SyncDriver(transport or SyncHttp(config))
        self._api = Api(config)

    def open(
        self,
        run_id: str,
        *,
        unless_active: float | None = None,
        from_start: bool = False,
        allow_unresolved: bool = False,
    ) -> Run:
        """Claims a run, new or not, and recovers it.

        * `unless_active`: raise `Active` if the run has a record that is younger than this many seconds.
        * `from_start`: resume at the start, not at the checkpoint: the journal answers all recorded calls. The same
          holds for a handle whose `recovery` was never read.
        * `allow_unresolved`: run new effects even while an older effect must be decided.
        """
        slots = self._driver.semaphore(self.config.calls_max)
        session = Session(self._api, run_id, self._driver.lock(), slots, allow_unresolved=allow_unresolved)
        recovery = self._driver.drive(session.open(from_start=from_start, unless_active=unless_active))
        return Run(self._driver, session, recovery)

    @contextmanager
    def run(
        self,
        run_id: str,
        *,
        unless_active: float | None = None,
        from_start: bool = False,
        allow_unresolved: bool = False,
    ) -> Generator[Run, None, None]:
        """As `open`; inside, tools find the run by themselves. Leaving it never ends the run,
        but records the results that interrupted calls hold, if the server answers."""
        run = self.open(run_id, unless_active=unless_active, from_start=from_start, allow_unresolved=allow_unresolved)
        token = current_run.set(run)
        try:
            yield run
        finally:
            current_run.reset(token)
            run.leave()

    def recover(self, run_id: str) -> Recovery | None:
        """Reads the state of a run, without claiming it; `None` for a run without records."""
        return self._driver.drive(recover(self._api, run_id))

    def close(self) -> None:
        """Closes the connections."""
        self._driver.transport.close()

    def __enter__(self) -> Runlog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(url: str | Sequence[str], **settings: Unpack[Settings]) -> Runlog:
    """Makes a connection to the server at `url`, or to several servers of one journal; see `Config` for the settings. Connects
    with the first operation."""
    return Runlog(Config(url, **settings))


__all__ = ["Run", "Runlog", "connect", "tool"]
