"""Sync handles: `runlog.sync.connect`, `Runlog`, `Run`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Unpack

from ._api import Api, Object
from ._drive import SyncDriver
from ._effect import Answer, Call
from ._handle import OnlyPlainWith, PlainRun, Recovery, RunBlock, open_session, recover
from ._http import SyncHttp, SyncTransport
from ._operations import ABSENT, ConnectionOperations
from ._operators import Effect, decide, lookup, runs_page, undecided_page
from ._session import Session
from ._settings import Calling, Opening, Settings
from ._tail import Tail
from ._tool import current_run, leave_current, tool
from ._wire import NoResponse
from .config import Config
from .errors import Error, Usage


class Run(PlainRun):
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
        **options: Unpack[Calling],
    ) -> Answer:
        if inspect.iscoroutinefunction(effect):
            raise Usage(f"the effect of {tool} is an async function, but the run belongs to a plain connection")
        return self._driver.drive(self._call(tool, args, effect, options))

    def turn(self, kind: str, content: object) -> None:
        self._driver.drive(self._turn(kind, content))

    def checkpoint(self, messages: Sequence[object] = (), state: object = None, *, turn: int = 0) -> None:
        self._driver.drive(self._checkpoint(messages, state, turn))

    def batch(self, payloads: Sequence[object]) -> list[str]:
        return self._driver.drive(self._batch(payloads))

    def prune_checkpoints(self, before: int | None = None, *, preserve_latest_terminal: bool = False) -> None:
        self._driver.drive(self._prune(before, preserve_latest_terminal))

    def end(self, status: str = "completed", reason: str = "") -> None:
        self._driver.drive(self._end(status, reason))

    def leave(self) -> None:
        self._driver.drive(self._session.leave())

    def reopen(self) -> None:
        self._driver.drive(self._session.reopen())


class _Block(OnlyPlainWith, RunBlock, AbstractContextManager[Run]):
    """The block of `with rl.run(…)`."""

    def __init__(self, block: AbstractContextManager[Run]) -> None:
        self._block = block

    def __enter__(self) -> Run:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


class Runlog(OnlyPlainWith, ConnectionOperations):
    """A connection to a server. It belongs to one process."""

    def __init__(self, config: Config, transport: SyncTransport | None = None) -> None:
        self.config = config
        self._driver = SyncDriver(transport or SyncHttp(config))
        self._api = Api(config)

    def open(
        self,
        run_id: str,
        **options: Unpack[Opening],
    ) -> Run:
        session, opening = open_session(self._api, self._driver, run_id, **options)
        recovery = self._driver.drive(opening)
        return Run(self._driver, session, recovery)

    def run(
        self,
        run_id: str,
        **options: Unpack[Opening],
    ) -> AbstractContextManager[Run]:
        return _Block(self._in_run(partial(self.open, run_id, **options)))

    @contextmanager
    def _in_run(self, open_run: Callable[[], Run]) -> Generator[Run]:
        run = open_run()
        outer = current_run.get()
        current_run.set(run)
        try:
            yield run
        finally:
            leave_current(run, outer)
            run.leave()

    def recover(self, run_id: str) -> Recovery | None:
        return self._driver.drive(recover(self._api, run_id))

    # For operators

    def runs(
        self,
        prefix: str = "",
        *,
        status: str | None = None,
        stuck: bool = False,
        in_doubt: bool = False,
        newest: bool = False,
        since: str | None = None,
    ) -> Generator[Object]:
        terms = {
            "prefix": prefix,
            "status": status,
            "stuck": stuck,
            "in_doubt": in_doubt,
            "newest": newest,
            "since": since,
        }
        cursor: str | None = None
        while True:
            page, cursor = self._driver.drive(runs_page(self._api, cursor, terms))
            yield from page
            if cursor is None:
                return

    def undecided(self, run_id: str | None = None) -> Generator[Effect]:
        cursor: str | None = None
        while True:
            page, cursor = self._driver.drive(undecided_page(self._api, cursor, run_id))
            yield from page
            if cursor is None:
                return

    def decide(
        self,
        effect: Effect,
        decision: Literal["done", "adopt", "not_done", "give_up"],
        *,
        who: str,
        why: str,
        result: Any = ABSENT,
        against: str | None = None,
        force: bool = False,
    ) -> None:
        self._driver.drive(decide(self._api, effect, decision, result, who, why, against, force))

    def lookup(self, run_id: str, tool: str, args: object, *, occurrence: int | None = None) -> Object:
        return self._driver.drive(lookup(self._api, run_id, tool, args, occurrence))

    def tail(
        self, run_id: str | None = None, *, start: str = "beginning", until_end: bool = False, raw: bool = False
    ) -> Generator[Object]:
        tail = Tail(self._api, run_id, start, until_end=until_end, raw=raw)
        while True:
            try:
                self._driver.drive(tail.api.features())
                with closing(self._driver.transport.stream(tail.request())) as parts:
                    for part in parts:
                        yield from tail.feed(part)
                if until_end:
                    return
                pause = tail.lost(None)
            except (Error, NoResponse) as error:
                pause = tail.lost(error)
            time.sleep(pause)

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
