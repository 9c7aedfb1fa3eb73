"""Sync handles: `runlog.sync.connect`, `Runlog`, `Run`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ._api import Api, Object
from ._divergence import OnDivergence
from ._drive import SyncDriver
from ._effect import Answer, Call
from ._ends import Ends
from ._handle import BaseRun, Recovery, RunBlock, recover
from ._http import SyncHttp, SyncTransport
from ._operators import ABSENT, Effect, decide, lookup, runs_page, undecided_page
from ._session import Session
from ._settings import Settings
from ._tail import Tail
from ._tool import current_run, tool
from ._wire import NoResponse
from .config import Config
from .errors import Error, Usage

if TYPE_CHECKING:
    from tenacity import Retrying


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
        if inspect.iscoroutinefunction(effect):
            raise Usage(f"the effect of {tool} is an async function, but the run belongs to a plain connection")
        return self._driver.drive(self._call(tool, args, effect, key, ends, unique, repeatable, retry))

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


class _Block(RunBlock, AbstractContextManager[Run]):
    """The block of `with rl.run(…)`."""

    def __init__(self, block: AbstractContextManager[Run]) -> None:
        self._block = block

    def __enter__(self) -> Run:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


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
        recovery = self._driver.drive(session.open(from_start=from_start, unless_active=unless_active))
        return Run(self._driver, session, recovery)

    def run(
        self,
        run_id: str,
        *,
        unless_active: float | None = None,
        from_start: bool = False,
        allow_unresolved: bool = False,
        on_divergence: OnDivergence = "raise",
    ) -> AbstractContextManager[Run]:
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

    @contextmanager
    def _in_run(self, open_run: Callable[[], Run]) -> Generator[Run]:
        run = open_run()
        token = current_run.set(run)
        try:
            yield run
        finally:
            current_run.reset(token)
            run.leave()

    def recover(self, run_id: str) -> Recovery | None:
        """Reads the state of a run, without claiming it; `None` for a run without records."""
        return self._driver.drive(recover(self._api, run_id))

    # For operators

    def runs(
        self,
        prefix: str = "",
        *,
        status: str | None = None,
        stuck: bool = False,
        newest: bool = False,
        since: str | None = None,
    ) -> Generator[Object]:
        """The runs, by id: `run_id`, `status`, `updated_at`, `epoch`, …

        `status` is `open` or how the run ended; `stuck` lists runs with an effect that must be decided; `newest` lists by the
        time of the last record, and `since` (RFC 3339) only runs with a record since then."""
        terms = {"prefix": prefix, "status": status, "stuck": stuck, "newest": newest, "since": since}
        cursor: str | None = None
        while True:
            page, cursor = self._driver.drive(runs_page(self._api, cursor, terms))
            yield from page
            if cursor is None:
                return

    def undecided(self, run_id: str | None = None) -> Generator[Effect]:
        """The effects of all runs, or of one, that may have happened and must be decided, with arguments and evidence.

        A token without the scope `read_content` gets masked contents."""
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
        """Records a decision about an effect that `undecided` returned: `done`, `adopt`, `not_done` or `give_up`.

        * `done` has the effect's `result`. `adopt` takes the evidence as the result.
        * `not_done` lets the effect run again: make sure that no process can still do it. If evidence says that it happened,
          this raises `Conflict`, unless `against` names that evidence: `effect.against`.
        * `force`: decide although the effect's process may still record the result.

        Raises `Conflict` if the effect has changed since it was read: read it again, and decide again."""
        self._driver.drive(decide(self._api, effect, decision, result, who, why, against, force))

    def lookup(self, run_id: str, tool: str, args: object, *, occurrence: int | None = None) -> Object:
        """Looks a call up: `status` is `completed`, `failed`, `pending` or `unknown`; `result`, `error`, `occurrences`, …

        Without `occurrence` it is the last call with these arguments. Raises `ResultNotRecorded` for a result that is not in the
        journal."""
        return self._driver.drive(lookup(self._api, run_id, tool, args, occurrence))

    def tail(
        self, run_id: str | None = None, *, start: str = "beginning", until_end: bool = False, raw: bool = False
    ) -> Generator[Object]:
        """Follows the records of a run, or of all runs, in the order of the log. Each has its `cursor`.

        `start` is `beginning`, `end` or a cursor, exclusive. If the connection is lost, the tail continues after the last record,
        and gives up after ten tries. From `end` it misses the records of a lost connection until it has received a record.
        With `until_end` it ends after the existing records. `raw` shows contents that are masked by privacy class."""
        tail = Tail(self._api, run_id, start, until_end=until_end, raw=raw)
        while True:
            try:
                self._driver.drive(self._api.features())
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
