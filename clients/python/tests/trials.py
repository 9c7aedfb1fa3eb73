"""`python -m trials [TRIALS] [--brokers HOST:PORT | --containers] [--seed N]`: trials of LangGraph threads with two workers.

    at once       worker a ─server 1─▶ thread ◀─server 2─ worker b   one continues, always; no turn of a worker that ended is lost
    one process   two loops of one saver at once                     the same
                  The requests of both go one at a time, in an order that chance decides.
    skewed clocks worker a, b, a, … in turns, each with a clock of its own: a turn is kept, or refused by name

With `--brokers` the workers have two servers on that broker, with `--containers` on a broker in a container. Else both have
one server with a local journal.
"""

from __future__ import annotations

import argparse
import asyncio
import operator
import random
import sys
import tempfile
import time
import types
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import id as ids
from langgraph.graph import END, START, StateGraph

from conftest import Server
from runlog import Conflict, Fenced
from runlog._http import AsyncHttp
from runlog._wire import Request, Response
from runlog.langgraph import RunlogSaver

ARRIVE_STEPS = 20
"""The steps of the event loop after an answer in which a worker can reach its next request."""
NODES_MAX = 3
SKEW_MAX = 600
"""The maximum number of seconds by which a worker's clock is wrong."""
TURNS = 5


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Turns:
    """Lets one request at a time go while it is entered, in an order that chance decides."""

    def __init__(self, chance: random.Random) -> None:
        self._random, self._waiting, self._arrived = chance, list[asyncio.Event](), asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        self._task = None

    async def send(self, http: AsyncHttp, request: Request) -> Response:
        if self._task is None:
            return await http.send(request)
        turn = asyncio.Event()
        self._waiting.append(turn)
        self._arrived.set()
        try:
            await turn.wait()
            return await http.send(request)
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)  # cancelled before its turn
            else:
                self._answered.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            for _ in range(ARRIVE_STEPS):
                await asyncio.sleep(0)
            self._arrived.clear()
            while self._waiting:
                self._answered.clear()
                self._waiting.pop(self._random.randrange(len(self._waiting))).set()
                await self._answered.wait()
                for _ in range(ARRIVE_STEPS):
                    await asyncio.sleep(0)


class InTurn:
    """A transport whose requests wait for their turn."""

    def __init__(self, http: Any, turns: Turns) -> None:
        self._http, self._turns = http, turns

    async def send(self, request: Request) -> Response:
        return await self._turns.send(self._http, request)

    async def close(self) -> None:
        await self._http.close()


def compiled(saver: RunlogSaver, nodes: int, *, is_parallel: bool) -> Any:
    """A graph with a number of nodes, which run at once or one after the other."""
    graph, before = StateGraph(State), START
    for number in range(nodes):

        async def node(_: State, number: int = number) -> Any:
            return {"log": [f"node {number}"]}

        graph.add_node(f"node {number}", node)
        graph.add_edge(before, f"node {number}")
        if is_parallel:
            graph.add_edge(f"node {number}", END)
        else:
            before = f"node {number}"
    if not is_parallel:
        graph.add_edge(before, END)
    return graph.compile(checkpointer=saver)


def forks(parents: Sequence[str]) -> int:
    """The number of checkpoints of a parent beyond the first."""
    return len(parents) - len(set(parents))


class Trials:
    """Runs trials through one or two servers, and counts how they ended."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        self._urls, self._random = urls, random.Random(seed)
        self._turns = Turns(self._random)
        self._prefix = f"{uuid.uuid4()}/"
        self.counts, self.failures = Counter[str](), list[str]()

    async def run(self, trials: int) -> None:
        """Makes `trials` trials of each kind."""
        async with AsyncExitStack() as savers:
            a, b, reader = [
                await savers.enter_async_context(RunlogSaver.connect(url, prefix=self._prefix))
                for url in (self._urls[0], self._urls[-1], self._urls[0])
            ]
            for saver in (a, b):
                driver = saver._shared.async_
                assert driver is not None
                driver.transport = InTurn(driver.transport, self._turns)
            for number in range(trials):
                await self._at_once("at once", f"once {number}", a, b, reader)
                await self._at_once("one process", f"process {number}", a, a, reader)
                await self._skewed_clocks(f"clocks {number}", a, b, reader)

    async def _turn(self, saver: RunlogSaver, thread: str, said: str, durability: Any = "sync") -> bool:
        """Invokes the graph. Returns whether it came to its end."""
        graph = compiled(saver, self._random.randint(1, NODES_MAX), is_parallel=self._random.random() < 0.5)
        config = {"configurable": {"thread_id": thread}}
        try:
            await graph.ainvoke({"log": [said]}, config, durability=durability)
            return True
        except Fenced:
            return False

    async def _check(
        self,
        thread: str,
        reader: RunlogSaver,
        kept: Sequence[str],
        others: Collection[str] = (),
        *,
        ordered: bool = False,
    ) -> None:
        """Checks that a thread has the turns `kept`, each once, and maybe the others; and one chain of checkpoints."""
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        found = await reader.aget_tuple(config)
        log = found.checkpoint["channel_values"].get("log", []) if found else []
        said = [each for each in log if not each.startswith("node") and each not in others]
        if (said if ordered else sorted(said)) != (kept if ordered else sorted(kept)):
            self.failures.append(f"{thread} has {said}, and not {kept}")
        parents = [
            of.parent_config["configurable"]["checkpoint_id"] async for of in reader.alist(config) if of.parent_config
        ]
        if forks(parents):
            self.failures.append(f"{thread} has {forks(parents)} forks")

    async def _at_once(self, kind: str, thread: str, a: RunlogSaver, b: RunlogSaver, reader: RunlogSaver) -> None:
        before = self._random.choice([None, a, b, reader])
        kept = ["before"] if before is not None else []
        if before is not None and not await self._turn(before, thread, "before"):
            self.failures.append(f"{thread} refused its first turn")
        durability = self._random.choice(["sync", "async", "exit"])
        with self._turns:
            ended = await asyncio.gather(
                *(self._turn(saver, thread, said, durability) for saver, said in zip((a, b), "ab", strict=True))
            )
        count = sum(ended)
        self.counts[kind] += 1
        self.counts[f"{kind}: {('no worker', 'one worker', 'both, in turns')[count]}"] += 1
        if not count:
            owner = {None: "no worker", a: "a", b: "b", reader: "another"}[before]
            self.failures.append(f"{thread}, last written by {owner}, refused both workers, durability {durability}")
        finished = [said for said, whole in zip("ab", ended, strict=True) if whole]
        await self._check(thread, reader, [*kept, *finished], {*"ab"} - {*finished})

    async def _skewed_clocks(self, thread: str, a: RunlogSaver, b: RunlogSaver, reader: RunlogSaver) -> None:
        workers = [(saver, self._random.uniform(-SKEW_MAX, SKEW_MAX)) for saver in (a, b)]
        kept = list[str]()
        for number in range(TURNS):
            saver, skew = self._random.choice(workers)
            try:
                with clock(skew):
                    if await self._turn(saver, thread, f"turn {number}"):
                        kept.append(f"turn {number}")
                        self.counts["turns kept"] += 1
                    else:
                        self.failures.append(f"{thread}: a worker was fenced in turn {number}")
            except Conflict as error:
                self.counts["turns refused, which names the clock"] += 1
                if "clock of this machine is behind" not in str(error):
                    self.failures.append(f"{thread}: turn {number}: {error}")
        self.counts["skewed clocks"] += 1
        await self._check(thread, reader, kept, ordered=True)


@contextmanager
def clock(skew: float) -> Iterator[None]:
    """Lets ids have the time of a machine whose clock is wrong by `skew` seconds."""
    real = ids.time, ids._last_v6_timestamp
    ids.time = types.SimpleNamespace(time_ns=lambda: time.time_ns() + round(skew * 1e9))
    ids._last_v6_timestamp = None
    try:
        yield
    finally:
        ids.time, ids._last_v6_timestamp = real


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="scripts/python.sh trials", description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="?", type=int, default=1000, help="how many of each kind [1000]")
    parser.add_argument("--brokers", help="HOST:PORT of a broker: the workers have two servers")
    parser.add_argument("--containers", action="store_true", help="start a broker in a container")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of chance [random]")
    options = parser.parse_args()
    with ExitStack() as ends:
        place = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="runlog-trials-")))
        brokers = options.brokers
        if options.containers:
            from runlog.testcontainers import RunlogOnKafka

            brokers = ends.enter_context(RunlogOnKafka()).brokers
        log = ("--brokers", brokers) if brokers else ("--local",)
        servers = [Server(place / f"server-{number}", log=log) for number in range(2 if brokers else 1)]
        for server in servers:
            ends.callback(server.stop)
        begun, trials = time.monotonic(), Trials([server.url for server in servers], options.seed)
        asyncio.run(trials.run(options.trials))
        print(f"{options.trials} trials of each kind in {time.monotonic() - begun:.0f} s, seed {options.seed}")
        print("\n".join(f"{count:6}  {what}" for what, count in sorted(trials.counts.items())))
        print("\n".join(trials.failures[:50]) or "no turn was lost, and one worker always continued")
    return bool(trials.failures)


if __name__ == "__main__":
    sys.exit(main())
