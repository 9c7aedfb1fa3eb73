"""LangGraph's checkpointers beside each other: conformance, latency of a turn, and bytes. `scripts/python.sh savers [TURNS]`.

Each has its defaults. PostgreSQL is left out where its programs are not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import glob
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from kills.fleet import Server
from runlog.langgraph import RunlogSaver

CAPABILITIES = ("put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune")
QUESTION, ANSWER = "q" * 200, "a" * 500


@dataclass
class Kind:
    """A kind of checkpointer."""

    name: str
    fresh: Callable[[], AbstractAsyncContextManager[Any]]
    """A saver with nothing in it."""
    stored: Callable[[], Awaitable[dict[str, int]]]
    """Bytes that the last saver stored, by where."""
    results: dict[str, str] = field(default_factory=dict)
    turns: list[float] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)


def size(path: Path) -> int:
    """Bytes of a file, or of all in a folder."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def kib(stored: dict[str, int]) -> str:
    return ", ".join(f"{count / 1024:,.0f} KiB {where}" for where, count in stored.items()) or "none"


def memory() -> Kind:
    @asynccontextmanager
    async def fresh() -> AsyncIterator[Any]:
        yield InMemorySaver()

    async def stored() -> dict[str, int]:
        return {}

    return Kind("memory", fresh, stored)


def sqlite(folder: Path) -> Kind:
    files: list[Path] = []

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Any]:
        files.append(folder / f"{uuid.uuid4()}.sqlite")
        async with AsyncSqliteSaver.from_conn_string(str(files[-1])) as saver:
            await saver.setup()
            yield saver

    async def stored() -> dict[str, int]:
        return {"in the file": size(files[-1])}

    return Kind("SQLite", fresh, stored)


def postgres_programs() -> str | None:
    """The folder of PostgreSQL's programs, which Debian does not have on PATH."""
    found = shutil.which("initdb")
    return os.path.dirname(found) if found else max(glob.glob("/usr/lib/postgresql/*/bin"), default=None)


class Postgres:
    """A PostgreSQL server of our own, at a socket in a folder."""

    def __init__(self, folder: Path, programs: str) -> None:
        self.folder, self._programs = folder, programs
        # It does not run as root.
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        folder.mkdir()
        if self._as:
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust")
        options = f"-k {folder} -c listen_addresses=''"
        self._run("pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w", "-o", options, "start")

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._as, f"{self._programs}/{program}", *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "fast", "-w", "stop")


def postgres(server: Postgres) -> Kind:
    databases: list[str] = []

    def run(statement: str) -> Any:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchone() if cursor.description else None

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Any]:
        databases.append(f"d{uuid.uuid4().hex}")
        run(f"create database {databases[-1]}")
        empty.append(run(f"select pg_database_size('{databases[-1]}')")[0])
        async with AsyncPostgresSaver.from_conn_string(server.url(databases[-1])) as saver:
            await saver.setup()
            yield saver

    empty: list[int] = []

    async def stored() -> dict[str, int]:
        now = run(f"select pg_database_size('{databases[-1]}')")[0]
        return {"more than an empty database": now - empty[-1]}

    return Kind("PostgreSQL", fresh, stored)


def ours(server: Server, journal: Path) -> Kind:
    @asynccontextmanager
    async def fresh() -> AsyncIterator[Any]:
        async with RunlogSaver.connect(server.url, prefix=f"{uuid.uuid4()}/") as saver:
            yield saver

    async def stored() -> dict[str, int]:
        # All that the server has buffered is in its files when it ended.
        server.stop()
        index = size(journal / "index")
        return {"in the log": size(journal) - index, "in the index": index}

    return Kind("Runlog", fresh, stored)


async def conform(kind: Kind) -> None:
    """The conformance suite's own counts."""

    @checkpointer_test(name=kind.name)
    async def saver() -> AsyncIterator[Any]:
        async with kind.fresh() as fresh:
            yield fresh

    report = (await validate(saver)).to_dict()["results"]
    for name in CAPABILITIES:
        result = report[name]
        passed, failed = result["tests_passed"], result["tests_failed"]
        kind.results[name] = f"{passed} of {passed + failed}" if result["detected"] else "none"
    detected = [report[name] for name in CAPABILITIES if report[name]["detected"]]
    passed = sum(result["tests_passed"] for result in detected)
    kind.results["all"] = f"{passed} in {len(detected)} of {len(CAPABILITIES)}"


async def converse(kind: Kind, turns: int) -> None:
    """A thread whose list of messages grows by two each turn."""

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(ANSWER)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    async with kind.fresh() as saver:
        compiled = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        for _ in range(turns):
            begun = time.perf_counter()
            await compiled.ainvoke({"messages": [HumanMessage(QUESTION)]}, config, durability="sync")
            kind.turns.append((time.perf_counter() - begun) * 1000)
    kind.bytes = await kind.stored()


def table(rows: list[list[str]]) -> str:
    """Rows of text in columns."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def quantiles(turns: list[float]) -> str:
    cut = statistics.quantiles(turns, n=100)
    return f"{statistics.median(turns):.1f} / {cut[98]:.1f}"


async def compare(kinds: list[Kind], alone: Kind, turns: int) -> None:
    """Prints both tables. `alone` is ours with a journal that has nothing else in it."""
    for kind in kinds:
        await conform(kind)
    names = (*CAPABILITIES, "all")
    head = ["conformance, tests passed", *(kind.name for kind in kinds)]
    print(table([head, *([name, *(kind.results[name] for kind in kinds)] for name in names)]), flush=True)
    kinds = [*kinds[:-1], alone]
    for kind in kinds:
        await converse(kind, turns)
    some = max(2, turns // 10)
    print(f"\n{turns} turns of a graph with one node and a message list, in one thread, durability sync")
    print(table([["", "first tenth, ms p50 / p99", "last tenth, ms p50 / p99", "stored"],
                 *([k.name, quantiles(k.turns[:some]), quantiles(k.turns[-some:]), kib(k.bytes)] for k in kinds)]))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/python.sh savers")
    parser.add_argument("turns", nargs="?", type=int, default=500, help="turns of the conversation [500]")
    turns = parser.parse_args().turns
    programs = postgres_programs()
    with tempfile.TemporaryDirectory(prefix="runlog-savers-") as name, ExitStack() as ends:
        folder = Path(name)
        folder.chmod(0o755)
        kinds = [memory(), sqlite(folder)]
        if programs is None:
            print("PostgreSQL is not installed: left out (Debian: apt-get install postgresql)")
        else:
            server = Postgres(folder / "postgres", programs)
            ends.callback(server.stop)
            kinds.append(postgres(server))
        journals = [folder / "many", folder / "alone"]
        for journal in journals:
            journal.mkdir()
        many, alone = Server(journals[0]), Server(journals[1])
        for runlog in (many, alone):
            ends.callback(runlog.stop)
        kinds.append(ours(many, journals[0] / "journal"))
        asyncio.run(compare(kinds, ours(alone, journals[1] / "journal"), turns))


if __name__ == "__main__":
    main()
