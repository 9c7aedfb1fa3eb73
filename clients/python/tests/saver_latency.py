"""LangGraph's checkpointers at equal durability: a save and a load of a long thread. `scripts/python.sh saver-latency --help`.

Each saver acknowledges a save when it is synced to disk. They alternate from round to round; a round is a thread of its own,
whose list of messages grows by two each turn. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import string
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint

from kills.fleet import Server
from savers import ANSWER, QUESTION, Kind, Postgres, ours, postgres, postgres_programs, sqlite

LAST = 50
"""How many turns are measured, the last of a thread."""
_LETTERS = random.Random(1)
WORDS = ["".join(_LETTERS.choices(string.ascii_lowercase, k=_LETTERS.randint(3, 8))) for _ in range(4096)]
THREAD: dict[str, Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def prose(nth: int, length: int) -> str:
    """Made-up words, the same for the same number. They compress about as prose does: PostgreSQL compresses its values."""
    chosen = random.Random(nth)
    return " ".join(chosen.choices(WORDS, k=length // 4))[:length]


async def synced(saver: Any, kind: str) -> None:
    """Makes sure that a save returns when it is on disk."""
    if kind == "SQLite":
        await saver.conn.execute("PRAGMA synchronous=FULL")
        mode = await (await saver.conn.execute("PRAGMA synchronous")).fetchone()
        assert mode == (2,), f"SQLite's synchronous is {mode}"
    elif kind == "PostgreSQL":
        for setting in ("fsync", "synchronous_commit"):
            row = await (await saver.conn.execute(f"show {setting}")).fetchone()
            assert row is not None, setting
            assert list(row.values()) == ["on"], f"{setting} is {row}"


def checkpoint_of(messages: list[AnyMessage], at: Any) -> Checkpoint:
    """As the loop of a graph makes it after a step that changed one channel."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": list(messages)}
    checkpoint["channel_versions"] = {"messages": at}
    checkpoint["updated_channels"] = ["messages"]
    return checkpoint


async def thread(kind: Kind, turns: int) -> dict[str, float]:
    """Milliseconds of a save, of a load and of both, medians of the last turns; bytes stored by all turns."""
    saves: list[float] = []
    loads: list[float] = []
    async with kind.fresh() as saver:
        await synced(saver, kind.name)
        messages: list[AnyMessage] = []
        config, at = THREAD, None
        for turn in range(turns):
            question, answer = prose(2 * turn, len(QUESTION)), prose(2 * turn + 1, len(ANSWER))
            messages += [HumanMessage(question, id=f"q{turn}"), AIMessage(answer, id=f"a{turn}")]
            at = saver.get_next_version(at, None)
            checkpoint = checkpoint_of(messages, at)
            begun = time.perf_counter()
            config = await saver.aput(config, checkpoint, {"source": "loop", "step": turn}, {"messages": at})
            saved = time.perf_counter()
            if turns - turn <= LAST:
                found = await saver.aget_tuple(THREAD)
                saves.append((saved - begun) * 1000)
                loads.append((time.perf_counter() - saved) * 1000)
                assert found is not None
                assert found.checkpoint["channel_values"]["messages"] == messages, f"{kind.name} lost messages"
    both = [save + load for save, load in zip(saves, loads, strict=True)]
    stored = await kind.stored()
    figures = {name: statistics.median(each) for name, each in (("save", saves), ("load", loads), ("both", both))}
    return {**figures, "bytes": float(sum(stored.values()))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/python.sh saver-latency")
    parser.add_argument("--turns", type=int, default=500, help=f"turns of a thread, {LAST} at the least [500]")
    parser.add_argument("--rounds", type=int, default=3, help="threads of each saver [3]")
    parser.add_argument("--without", action="append", default=[], choices=["sqlite", "postgres"], help="leave it out")
    arguments = parser.parse_args()
    assert arguments.turns >= LAST, "too few turns"
    versions = {"SQLite": f"{version('langgraph-checkpoint-sqlite')}, SQLite {sqlite3.sqlite_version}"}
    with tempfile.TemporaryDirectory(prefix="runlog-savers-") as name, ExitStack() as ends:
        folder = Path(name)
        folder.chmod(0o755)
        kinds: list[Kind] = []
        if "sqlite" not in arguments.without:
            kinds.append(sqlite(folder))
        if "postgres" not in arguments.without:
            programs = postgres_programs()
            assert programs is not None, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
            database = Postgres(folder / "postgres", programs)
            ends.callback(database.stop)
            kinds.append(postgres(database))
            with psycopg.connect(database.url("postgres")) as connection:
                found = connection.info.parameter_status("server_version")
            versions["PostgreSQL"] = f"{version('langgraph-checkpoint-postgres')}, PostgreSQL {found}"
        savers: dict[str, list[dict[str, float]]] = {"Runlog": [], **{kind.name: [] for kind in kinds}}
        for nth in range(arguments.rounds):
            # A journal of this thread alone, so that the size of the journal is the size of the thread.
            journal = folder / f"journal-{nth}"
            journal.mkdir()
            server = Server(journal)
            ends.callback(server.stop)
            order = [ours(server, journal / "journal"), *kinds]
            for kind in reversed(order) if nth % 2 else order:
                savers[kind.name].append(asyncio.run(thread(kind, arguments.turns)))
            server.stop()
    print(json.dumps({"versions": versions, "savers": savers}))


if __name__ == "__main__":
    main()
