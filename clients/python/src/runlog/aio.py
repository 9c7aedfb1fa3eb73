"""Async handles: `runlog.connect`, `Runlog`, `Run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ._api import Api, Object
from ._divergence import OnDivergence
from ._drive import AsyncDriver
from ._effect import Answer, Call
from ._ends import Ends
from ._handle import BaseRun, Recovery, RunBlock, recover
from ._http import AsyncHttp, AsyncTransport
from ._operators import ABSENT, Effect, decide, lookup, runs_page, undecided_page
from ._session import Session
from ._settings import Settings
from ._tail import Tail
from ._tool import current_run, tool
from ._wire import NoResponse
from .config import Config
from .errors import Error

if TYPE_CHECKING:
    from tenacity import Retrying


class Run(BaseRun):
    """A run that this process claimed. Its operations may be called concurrently, in one event loop.

    After a cancelled operation, the next operation settles its calls and records."""

    is_async = True

    def __init__(self, driver: AsyncDriver, session: Session, recovery: dict[str, Any]) -> None:
        super().__init__(session, recovery)
        self._driver = driver

    async def call(
        self,
        tool: str,
        args: object,
        effect: Callable[[Call], Awaitable[Any]],
        *,
        key: str | None = None,
        ends: Ends | None = None,
        unique: bool = False,
        repeatable: bool = False,
        retry: Retrying | None = None,
    ) -> Answer:
        """Runs `effect` unless the journal has the call's answer, and records its outcome.

        Without a key, a second call with the same arguments is another call. With `unique` it is the same call, for
        example because the arguments contain an id. An empty key raises `Usage`.

        With `repeatable` the effect may run any number of times, like a tool that only reads. If its process died, the
        call runs again without a key and without a decision; this requires the server feature `bases`.

        `retry` is a policy of tenacity for exceptions after which the effect may have happened, of a call with a key or with
        `repeatable`: each further attempt is recorded before it runs.

        Raises `Usage` for an effect that cannot be called with a `Call`, and `Invalid` for a part of `args` without JSON,
        with its place. If a result cannot be recorded, it is returned, and the call ends without it: the same call then
        raises `ResultNotRecorded`.

        The effect did not run if this raises `ReconcileRequired`, `ResultNotRecorded`, `Fenced`, `MissingContent`,
        `Unavailable`, `Stale` or `Conflict` with `happened` `nothing` or `unknown`. Otherwise `happened` describes
        the state of its result. `Failed` is the recorded failure of the effect."""
        return await self._driver.drive(self._call(tool, args, effect, key, ends, unique, repeatable, retry))

    async def turn(self, kind: str, content: object) -> None:
        """Records a message of the conversation; `kind` is `user`, `assistant`, …"""
        await self._driver.drive(self._turn(kind, content))

    async def checkpoint(self, messages: Sequence[object] = (), state: object = None, *, turn: int = 0) -> None:
        """Records the state of the loop. Pass all messages; only new ones are written.

        While calls are in flight, the checkpoint lists as unanswered every call that was answered since no call was
        in flight: a process that resumes there gets these answers from the journal once more. If no call is in
        flight, no call may be answered between collecting `messages` and `state` and the start of this method."""
        await self._driver.drive(self._checkpoint(messages, state, turn))

    async def batch(self, payloads: Sequence[object]) -> list[str]:
        """Appends 1 to 4096 records that are applied together or not at all. Returns their ids, in order.

        Each is a payload as `GET /openapi.json` describes it, such as `{"type": "conversation_turn", …}`. Other
        methods write calls and checkpoints. Raises `Conflict` if one record was refused; then all are refused."""
        return await self._driver.drive(self._batch(payloads))

    async def prune_checkpoints(self, before: int | None = None, *, preserve_latest_terminal: bool = False) -> None:
        """Hides checkpoints that cover less than `before` from answers; by default all except the last one.

        With `preserve_latest_terminal` the latest checkpoint after the run's end stays. Bytes stay in the log. The
        next checkpoint is written whole."""
        await self._driver.drive(self._prune(before, preserve_latest_terminal))

    async def end(self, status: str = "completed", reason: str = "") -> None:
        """Ends the run as `completed`, `failed` or `cancelled`.

        An ended run answers recorded calls, and accepts its last checkpoint and the same end again. Any other
        operation raises `Conflict`: no effect runs, and no record is appended."""
        await self._driver.drive(self._end(status, reason))

    async def leave(self) -> None:
        """Records the results that interrupted calls hold, if there are any and the server answers. Raises no `Error`."""
        await self._driver.drive(self._session.leave())

    async def reopen(self) -> None:
        """Settles failed or cancelled operations, as the next operation would.

        Raises `ClaimLost` or `Fenced` if another process has the run; the log then has held results as evidence."""
        await self._driver.drive(self._session.reopen())


class _Block(RunBlock, AbstractAsyncContextManager[Run]):
    """The block of `async with rl.run(…)`."""

    def __init__(self, block: AbstractAsyncContextManager[Run]) -> None:
        self._block = block

    async def __aenter__(self) -> Run:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)


class Runlog:
    """A connection to a server. It belongs to one process and one event loop."""

    def __init__(self, config: Config, transport: AsyncTransport | None = None) -> None:
        self.config = config
        self._driver = AsyncDriver(transport or AsyncHttp(config))
        self._api = Api(config)

    async def open(
        self,
        run_id: str,
        *,
        unless_active: float | None = None,
        from_start: bool = False,
        allow_unresolved: bool = False,
        on_divergence: OnDivergence = "raise",
    ) -> Run:
        """Claims a run, new or not, and recovers it.

        * `unless_active`: raise `Active` if the run has a record that is younger than this many seconds.
        * `from_start`: resume at the start, not at the checkpoint: the journal answers all recorded calls. The same
          holds for a handle whose `recovery` was never read.
        * `allow_unresolved`: run new effects even while an older effect must be decided.
        * `on_divergence`: a new call without a key raises `Diverged`, and nothing runs, as long as recorded calls after the
          checkpoint were not asked for. `allow` permits it: for a program that does not make its calls again. A program that
          makes calls in several tasks or threads is only warned.
        """
        slots = self._driver.semaphore(self.config.calls_max)
        lock = self._driver.lock()
        session = Session(
            self._api, run_id, lock, slots, allow_unresolved=allow_unresolved, on_divergence=on_divergence
        )
        recovery = await self._driver.drive(session.open(from_start=from_start, unless_active=unless_active))
        return Run(self._driver, session, recovery)

    def run(
        self,
        run_id: str,
        *,
        unless_active: float | None = None,
        from_start: bool = False,
        allow_unresolved: bool = False,
        on_divergence: OnDivergence = "raise",
    ) -> AbstractAsyncContextManager[Run]:
        """As `open`; inside, tools find the run by themselves. Leaving it never ends the run,
        but records the results that interrupted calls hold, if the server answers. The handle stays usable."""
        return _Block(
            self._in_run(
                partial(
                    self.open,
                    run_id,
                    unless_active=unless_active,
                    from_start=from_start,
                    allow_unresolved=allow_unresolved,
                    on_divergence=on_divergence,
                )
            )
        )

    @asynccontextmanager
    async def _in_run(self, open_run: Callable[[], Awaitable[Run]]) -> AsyncGenerator[Run]:
        run = await open_run()
        token = current_run.set(run)
        try:
            yield run
        finally:
            current_run.reset(token)
            await run.leave()

    async def recover(self, run_id: str) -> Recovery | None:
        """Reads the state of a run, without claiming it; `None` for a run without records."""
        return await self._driver.drive(recover(self._api, run_id))

    # For operators

    async def runs(
        self,
        prefix: str = "",
        *,
        status: str | None = None,
        stuck: bool = False,
        newest: bool = False,
        since: str | None = None,
    ) -> AsyncGenerator[Object]:
        """The runs, by id: `run_id`, `status`, `updated_at`, `epoch`, …

        `status` is `open` or how the run ended; `stuck` lists runs with an effect that must be decided; `newest` lists by the
        time of the last record, and `since` (RFC 3339) only runs with a record since then."""
        terms = {"prefix": prefix, "status": status, "stuck": stuck, "newest": newest, "since": since}
        cursor: str | None = None
        while True:
            page, cursor = await self._driver.drive(runs_page(self._api, cursor, terms))
            for run in page:
                yield run
            if cursor is None:
                return

    async def undecided(self, run_id: str | None = None) -> AsyncGenerator[Effect]:
        """The effects of all runs, or of one, that may have happened and must be decided, with arguments and evidence.

        A token without the scope `read_content` gets masked contents."""
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
        """Records a decision about an effect that `undecided` returned: `done`, `adopt`, `not_done` or `give_up`.

        * `done` has the effect's `result`. `adopt` takes the evidence as the result.
        * `not_done` lets the effect run again: make sure that no process can still do it. If evidence says that it happened,
          this raises `Conflict`, unless `against` names that evidence: `effect.against`.
        * `force`: decide although the effect's process may still record the result.

        Raises `Conflict` if the effect has changed since it was read: read it again, and decide again."""
        await self._driver.drive(decide(self._api, effect, decision, result, who, why, against, force))

    async def lookup(self, run_id: str, tool: str, args: object, *, occurrence: int | None = None) -> Object:
        """Looks a call up: `status` is `completed`, `failed`, `pending` or `unknown`; `result`, `error`, `occurrences`, …

        Without `occurrence` it is the last call with these arguments. Raises `ResultNotRecorded` for a result that is not in the
        journal."""
        return await self._driver.drive(lookup(self._api, run_id, tool, args, occurrence))

    async def tail(
        self, run_id: str | None = None, *, start: str = "beginning", until_end: bool = False, raw: bool = False
    ) -> AsyncGenerator[Object]:
        """Follows the records of a run, or of all runs, in the order of the log. Each has its `cursor`.

        `start` is `beginning`, `end` or a cursor, exclusive. If the connection is lost, the tail continues after the last record,
        and gives up after ten tries. From `end` it misses the records of a lost connection until it has received a record.
        With `until_end` it ends after the existing records. `raw` shows contents that are masked by privacy class."""
        tail = Tail(self._api, run_id, start, until_end=until_end, raw=raw)
        while True:
            try:
                await self._driver.drive(self._api.features())
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
