"""Async handles: `runlog.connect`, `Runlog`, `Run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Unpack

from ._api import Api, Object
from ._drive import AsyncDriver
from ._effect import Answer, Call
from ._handle import AsyncRun, OnlyAsyncWith, Recovery, RunBlock, open_session, recover
from ._http import AsyncHttp, AsyncTransport
from ._operations import ABSENT, ConnectionOperations
from ._operators import Effect, decide, lookup, runs_page, undecided_page
from ._session import Session
from ._settings import Calling, Opening, Settings
from ._tail import Tail
from ._tool import current_run, leave_current, tool
from ._wire import NoResponse
from .config import Config
from .errors import Error


class Run(AsyncRun):
    """A run that this process claimed. Its operations may be called concurrently, in one event loop.

    After a cancelled operation, the next operation settles its calls and records."""

    def __init__(self, driver: AsyncDriver, session: Session, recovery: dict[str, Any]) -> None:
        super().__init__(session, recovery)
        self._driver = driver

    async def call(
        self,
        tool: str,
        args: object,
        effect: Callable[[Call], Awaitable[Any]],
        **options: Unpack[Calling],
    ) -> Answer:
        return await self._driver.drive(self._call(tool, args, effect, options))

    async def turn(self, kind: str, content: object) -> None:
        await self._driver.drive(self._turn(kind, content))

    async def checkpoint(self, messages: Sequence[object] = (), state: object = None, *, turn: int = 0) -> None:
        await self._driver.drive(self._checkpoint(messages, state, turn))

    async def batch(self, payloads: Sequence[object]) -> list[str]:
        return await self._driver.drive(self._batch(payloads))

    async def prune_checkpoints(self, before: int | None = None, *, preserve_latest_terminal: bool = False) -> None:
        await self._driver.drive(self._prune(before, preserve_latest_terminal))

    async def end(self, status: str = "completed", reason: str = "") -> None:
        await self._driver.drive(self._end(status, reason))

    async def leave(self) -> None:
        await self._driver.drive(self._session.leave())

    async def reopen(self) -> None:
        await self._driver.drive(self._session.reopen())


class _Block(OnlyAsyncWith, RunBlock, AbstractAsyncContextManager[Run]):
    """The block of `async with rl.run(…)`."""

    def __init__(self, block: AbstractAsyncContextManager[Run]) -> None:
        self._block = block

    async def __aenter__(self) -> Run:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)


class Runlog(OnlyAsyncWith, ConnectionOperations):
    """A connection to a server. It belongs to one process and one event loop."""

    def __init__(self, config: Config, transport: AsyncTransport | None = None) -> None:
        self.config = config
        self._driver = AsyncDriver(transport or AsyncHttp(config))
        self._api = Api(config)

    async def open(
        self,
        run_id: str,
        **options: Unpack[Opening],
    ) -> Run:
        session, opening = open_session(self._api, self._driver, run_id, **options)
        recovery = await self._driver.drive(opening)
        return Run(self._driver, session, recovery)

    def run(
        self,
        run_id: str,
        **options: Unpack[Opening],
    ) -> AbstractAsyncContextManager[Run]:
        return _Block(self._in_run(partial(self.open, run_id, **options)))

    @asynccontextmanager
    async def _in_run(self, open_run: Callable[[], Awaitable[Run]]) -> AsyncGenerator[Run]:
        run = await open_run()
        outer = current_run.get()
        current_run.set(run)
        try:
            yield run
        finally:
            leave_current(run, outer)
            await run.leave()

    async def recover(self, run_id: str) -> Recovery | None:
        return await self._driver.drive(recover(self._api, run_id))

    # For operators

    async def runs(
        self,
        prefix: str = "",
        *,
        status: str | None = None,
        stuck: bool = False,
        in_doubt: bool = False,
        newest: bool = False,
        since: str | None = None,
    ) -> AsyncGenerator[Object]:
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
            page, cursor = await self._driver.drive(runs_page(self._api, cursor, terms))
            for run in page:
                yield run
            if cursor is None:
                return

    async def undecided(self, run_id: str | None = None) -> AsyncGenerator[Effect]:
        cursor: str | None = None
        while True:
            page, cursor = await self._driver.drive(undecided_page(self._api, cursor, run_id))
            for effect in page:
                yield effect
            if cursor is None:
                return

    async def decide(
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
        await self._driver.drive(decide(self._api, effect, decision, result, who, why, against, force))

    async def lookup(self, run_id: str, tool: str, args: object, *, occurrence: int | None = None) -> Object:
        return await self._driver.drive(lookup(self._api, run_id, tool, args, occurrence))

    async def tail(
        self, run_id: str | None = None, *, start: str = "beginning", until_end: bool = False, raw: bool = False
    ) -> AsyncGenerator[Object]:
        tail = Tail(self._api, run_id, start, until_end=until_end, raw=raw)
        while True:
            try:
                await self._driver.drive(tail.api.features())
                async with aclosing(self._driver.transport.stream(tail.request())) as parts:
                    async for part in parts:
                        for line in tail.feed(part):
                            yield line
                if until_end:
                    return
                pause = tail.lost(None)
            except (Error, NoResponse) as error:
                pause = tail.lost(error)
            await asyncio.sleep(pause)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._driver.transport.close()

    async def __aenter__(self) -> Runlog:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def connect(url: str | Sequence[str], **settings: Unpack[Settings]) -> Runlog:
    """Makes a connection to the server at `url`, or to several servers of one journal; see `Config` for the settings. Connects
    with the first operation."""
    return Runlog(Config(url, **settings))


__all__ = ["Run", "Runlog", "connect", "tool"]
