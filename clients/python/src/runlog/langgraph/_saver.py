"""`RunlogSaver`: LangGraph's interface, sync and async."""

from __future__ import annotations

import asyncio
import collections
import copy
import os
import random
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, Unpack

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)  # fmt: skip
from langgraph.checkpoint.serde.base import SerializerProtocol

from .._api import Api
from .._checks import check_list, check_text
from .._drive import AsyncDriver, SyncDriver
from .._http import AsyncHttp, SyncHttp
from .._settings import Settings
from .._wire import Steps
from ..config import Config
from ..errors import Forked, Usage
from . import _store
from ._index import ForeignThread
from ._metadata import candidates
from ._pieces import KnownPieces
from ._serde import Allowed, allowing, strict
from ._store import Target
from ._threads import Thread
from ._types import types_of_graph

T = TypeVar("T")
PREFIX = "langgraph/"
"""The prefix of threads, unless the program names another prefix."""


class FairLock:
    """A lock of threads: first come, first served. LangGraph's writes keep their order."""

    def __init__(self) -> None:
        self._guard, self._locked = threading.Lock(), False
        self._waiting: collections.deque[threading.Event] = collections.deque()

    def acquire(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds."""
        with self._guard:
            if not self._locked:
                self._locked = True
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        if mine.wait(timeout):
            return True
        with self._guard:
            if mine.is_set():
                return True
            self._waiting.remove(mine)
            return False

    def release(self) -> None:
        """Releases the lock to the thread that has waited longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._locked = False


class _Shared:
    """The shared state of a saver and its clones: connections and threads."""

    def __init__(self, config: Config, prefix: str) -> None:
        self.config, self.prefix, self.api = config, prefix, Api(config)
        self.sync: SyncDriver | None = None
        self.async_: AsyncDriver | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.threads, self.pieces = dict[str, Thread](), KnownPieces()
        self.guard, self.pid = threading.Lock(), os.getpid()

    def thread(self, thread_id: str) -> Thread:
        """The state of a thread. Kept as long as the saver: some hundred bytes, and the hashes of its values."""
        self.check_process()
        with self.guard:
            found = self.threads.get(thread_id)
            if found is None:
                found = self.threads[thread_id] = self.new_thread(thread_id)
            return found

    def new_thread(self, thread_id: str, *, owned: bool = False) -> Thread:
        """A thread without state."""
        self.check_process()
        lock = FairLock() if self.sync is not None else asyncio.Lock()
        return Thread(self.api, self.prefix, thread_id, lock, self.pieces, owned=owned)

    def check_process(self) -> None:
        """A forked child has the parent's connections and claims."""
        if os.getpid() != self.pid:
            raise Forked(f"the saver belongs to process {self.pid}; make one in this process")


class RunlogSaver(BaseCheckpointSaver[str]):
    """A checkpointer that keeps a thread as the run `prefix + thread_id`. A thread of a saver with another prefix, as `a:b:`
    beside `a:`, is refused with `Conflict`.

    `async with RunlogSaver.connect(url, prefix="…") as saver` for async graphs, and the same without `async` for sync
    ones. One saver object at a time writes a thread: the first write claims its run, and a superseded saver gets
    `Fenced`. To take over, read the thread again.

    Values have types of Python and LangGraph, messages and documents of LangChain, types that the graph names, and
    types in `allow`. Reading or writing any other type raises `TypeNotAllowed`. Otherwise a client that may append to a
    run could make its readers call any function.
    """

    def __init__(
        self,
        config: Config,
        *,
        prefix: str = PREFIX,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Allowed] | None = None,
    ) -> None:
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Usage("make a saver with `RunlogSaver.connect(url, prefix=…)`")
        check_text("the prefix of a saver", prefix)
        super().__init__(serde=strict(serde, allow))
        self._shared = _Shared(config, prefix)

    @classmethod
    def connect(
        cls,
        url: str | Sequence[str],
        *,
        prefix: str = PREFIX,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Allowed] | None = None,
        **settings: Unpack[Settings],
    ) -> RunlogSaver:
        """Makes a saver on the server at `url`. `allow` has types, or pairs of a type's module and name; a type also
        allows the types of its fields. `runlog.Config` describes the settings."""
        if not prefix:
            raise Usage(
                "an empty prefix would make every run of the journal a thread: pass prefix='chat/', for example"
            )
        return cls(Config(url, **settings), prefix=prefix, serde=serde, allow=allow)

    def with_allowlist(self, extra_allowlist: Collection[Any]) -> RunlogSaver:
        """A copy of the saver with more types, given as in `allow`. It shares connections and threads."""
        return self._copy_with(allowing(self.serde, extra_allowlist))

    def for_graph(self, graph: Any) -> RunlogSaver:
        """A copy of the saver with the types that a compiled graph names. A graph gets its copy by itself."""
        return self._copy_with(allowing(self.serde, types_of_graph(graph), closed=True))

    def _copy_with(self, serde: SerializerProtocol) -> RunlogSaver:
        clone = copy.copy(self)
        clone.serde = serde
        return clone

    def __enter__(self) -> RunlogSaver:
        self._shared.sync = SyncDriver(SyncHttp(self._shared.config))
        return self

    def __exit__(self, *_: object) -> None:
        if self._shared.sync is not None:
            self._shared.sync.transport.close()

    async def __aenter__(self) -> RunlogSaver:
        self._shared.async_ = AsyncDriver(AsyncHttp(self._shared.config))
        self._shared.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._shared.async_ is not None:
            await self._shared.async_.transport.close()

    def _drive(self, steps: Steps[T]) -> T:
        """Runs an operation on this thread; of an async saver in its event loop, which must be another thread's."""
        shared = self._shared
        if shared.sync is not None:
            return shared.sync.drive(steps)
        if shared.async_ is None or shared.loop is None:
            raise Usage("enter the saver first: `with RunlogSaver.connect(…) as saver`, or `async with`")
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is shared.loop:
            raise Usage("a sync method of an async saver blocks its own event loop: use the async one (`ainvoke`, …)")
        return asyncio.run_coroutine_threadsafe(shared.async_.drive(steps), shared.loop).result()

    async def _adrive(self, steps: Steps[T]) -> T:
        """Runs an operation in the event loop; of a sync saver on a thread."""
        shared = self._shared
        if shared.async_ is not None:
            return await shared.async_.drive(steps)
        return await asyncio.to_thread(self._drive, steps)

    def _thread(self, thread_id: str) -> Thread:
        return self._shared.thread(thread_id)

    def _of(self, config: RunnableConfig) -> Thread:
        return self._thread(Target.of(config).thread_id)

    def _thread_ids(self, filters: Sequence[dict[str, Any]]) -> Steps[list[str]]:
        """The threads that may have a checkpoint with the metadata of one of the filters."""
        prefix, api = self._shared.prefix, self._shared.api
        runs = yield from candidates(api, prefix, (yield from api.runs(prefix)), filters)
        return [run_id.removeprefix(prefix) for run_id in runs]

    def _listed(self, config: RunnableConfig | None, filter: dict[str, Any] | None) -> Steps[list[str]]:
        if config is not None and "thread_id" in config.get("configurable", {}):
            return [Target.of(config).thread_id]
        return (yield from self._thread_ids([filter or {}]))

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest one."""
        return self._drive(_store.get(self._of(config), self.serde, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._adrive(_store.get(self._of(config), self.serde, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yields checkpoints thread by thread, in each thread from the last written to the first. Reads from the thread's
        end, and loads the checkpoints that it yields. `before` leaves out checkpoints whose ids are not below that id."""
        left = limit
        for thread_id in self._drive(self._listed(config, filter)):
            thread = self._thread(thread_id)
            listing = _store.Listing(thread, self.serde, config, filter, before)
            while (left is None or left > 0) and (page := self._drive(listing.next(left))):
                for index, marker in page:
                    if left is not None and left <= 0:
                        return
                    loaded = self._drive(_store.read_listed(thread, self.serde, thread_id, index, marker))
                    if loaded is not None:
                        yield loaded
                        left = None if left is None else left - 1

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        left = limit
        for thread_id in await self._adrive(self._listed(config, filter)):
            thread = self._thread(thread_id)
            listing = _store.Listing(thread, self.serde, config, filter, before)
            while (left is None or left > 0) and (page := await self._adrive(listing.next(left))):
                for index, marker in page:
                    if left is not None and left <= 0:
                        return
                    loaded = await self._adrive(_store.read_listed(thread, self.serde, thread_id, index, marker))
                    if loaded is not None:
                        yield loaded
                        left = None if left is None else left - 1

    # Owning

    def claim_write_ownership(self, thread_id: str) -> ThreadOwner:
        """Takes a thread over now, before any read or write. Raises `Fenced` if another claim came first."""
        owner = ThreadOwner(self, str(thread_id))
        self._drive(owner.owned.claim())
        return owner

    async def aclaim_write_ownership(self, thread_id: str) -> ThreadOwner:
        """As `claim_write_ownership`."""
        owner = ThreadOwner(self, str(thread_id))
        await self._adrive(owner.owned.claim())
        return owner

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint. Raises `Fenced` if another saver took the thread over."""
        return self._drive(_store.put(self._of(config), self.serde, config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return await self._adrive(_store.put(self._of(config), self.serde, config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores writes of a task. Raises `Fenced` if another saver took the thread over."""
        self._drive(_store.put_writes(self._of(config), self.serde, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await self._adrive(_store.put_writes(self._of(config), self.serde, config, writes, task_id, task_path))

    # Deleting and copying: each takes the thread over

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread from all answers. Its bytes stay in the log."""
        self._drive(_store.delete(self._thread(str(thread_id))))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._adrive(_store.delete(self._thread(str(thread_id))))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of LangGraph runs."""
        self._drive(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await self._adrive(self._delete_for_runs(run_ids))

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Steps[None]:
        check_list("run_ids", run_ids)
        if run_ids:
            for thread_id in (yield from self._thread_ids([{"run_id": run_id} for run_id in run_ids])):
                with suppress(ForeignThread):
                    yield from _store.delete_where(self._thread(thread_id), self.serde, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes of a thread."""
        self._drive(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._adrive(self._copy(source_thread_id, target_thread_id))

    def _copy(self, source: str, target: str) -> Steps[None]:
        return _store.copy(self._thread(str(source)), self._thread(str(target)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` keeps the newest checkpoint of each namespace, `delete` none."""
        self._drive(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._adrive(self._prune(thread_ids, strategy))

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
        if strategy not in ("keep_latest", "delete"):
            raise Usage(f"a strategy is keep_latest or delete, not {strategy!r}")
        check_list("thread_ids", thread_ids)
        for thread_id in thread_ids:
            thread = self._thread(str(thread_id))
            yield from _store.delete(thread) if strategy == "delete" else _store.delete_where(thread, self.serde, None)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions that grow, and differ between two writers."""
        number = 0 if current is None else current if isinstance(current, int) else int(current.split(".")[0])
        return f"{number + 1:032}.{random.random():016}"


class ThreadOwner(RunlogSaver):
    """The saver of a worker that took a thread over, from `RunlogSaver.claim_write_ownership`.

    It writes the thread until another writer claims it. After that, each write raises `Fenced`. Reading gives a lost
    thread back to a `RunlogSaver`, but not to an owner. It shares connections and other threads with its saver."""

    def __init__(self, saver: RunlogSaver, thread_id: str) -> None:
        super(RunlogSaver, self).__init__(serde=saver.serde)
        self._shared, self.thread_id = saver._shared, thread_id
        self.owned = self._shared.new_thread(thread_id, owned=True)

    def __enter__(self) -> NoReturn:
        raise Usage("an owner has the connections of its saver: enter that one")

    async def __aenter__(self) -> NoReturn:
        raise Usage("an owner has the connections of its saver: enter that one")

    def _thread(self, thread_id: str) -> Thread:
        self._shared.check_process()
        return self.owned if thread_id == self.thread_id else self._shared.thread(thread_id)

    def check_write_ownership(self) -> None:
        """Raises `Fenced` if another writer took the thread over. A writer may still take it over right after this."""
        self._drive(self.owned.check_owned())

    async def acheck_write_ownership(self) -> None:
        """As `check_write_ownership`."""
        await self._adrive(self.owned.check_owned())
