"""Effects of graphs that wait for a person, or whose task is cancelled: the next process continues, and nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import runlog
from runlog.langgraph import RunlogSaver

QUESTIONS = ("may I?", "are you sure?", "to which address?")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def graph_of(saver, *nodes):
    """A graph that runs all nodes at once."""
    graph = StateGraph(State)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
        graph.add_edge(node.__name__, END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_effect_before_an_interrupt_runs_once_whichever_process_gets_the_answer(
    url, prefix, config, run_id, durability
):
    reserved = []

    @runlog.tool
    async def reserve(call, seat: int) -> str:
        reserved.append(seat)
        return f"seat {seat}"

    async def ask(state: State):
        # A node begins again with each answer.
        seat = await reserve(12)
        return {"log": [seat, *(interrupt(question) for question in QUESTIONS)]}

    asked = []
    for given in ({"log": ["begin"]}, *(Command(resume=f"answer {number}") for number in range(3))):
        async with RunlogSaver.connect(url, prefix=prefix) as saver, runlog.connect(url) as rl:
            async with rl.run(run_id, on_divergence="allow"):
                state = await graph_of(saver, ask).ainvoke(given, config, durability=durability)
            asked += [waiting.value for waiting in state.get("__interrupt__", ())]
    assert reserved == [12] and asked == [*QUESTIONS]
    assert state["log"] == ["begin", "seat 12", "answer 0", "answer 1", "answer 2"]


def writes_stored(saver, monkeypatch):
    """An event: the writes of a node are in the journal."""
    put, stored = saver.aput_writes, asyncio.Event()

    async def aput_writes(config, writes, *more):
        await put(config, writes, *more)
        if any(channel == "log" for channel, _ in writes):
            stored.set()

    monkeypatch.setattr(saver, "aput_writes", aput_writes)
    return stored


async def test_a_cancelled_graph_continues_and_runs_nothing_again_that_ended(url, prefix, config, run_id, monkeypatch):
    ran, slow_begins = [], asyncio.Event()

    @runlog.tool
    async def pay(call, to: str) -> str:
        ran.append(to)
        if to == "c":
            slow_begins.set()
            await asyncio.Event().wait()
        return f"paid {to}"

    async def quick(state: State):
        ran.append("quick")
        return {"log": [await pay("a")]}

    async def slow(state: State):
        return {"log": [await pay("b"), await pay("c")]}

    @contextlib.asynccontextmanager
    async def process():
        async with (
            RunlogSaver.connect(url, prefix=prefix) as saver,
            runlog.connect(url) as rl,
            rl.run(run_id, on_divergence="allow"),
        ):
            yield saver, graph_of(saver, quick, slow)

    async with process() as (saver, graph):
        stored = writes_stored(saver, monkeypatch)
        task = asyncio.create_task(graph.ainvoke({"log": []}, config, durability="sync"))
        await slow_begins.wait()
        await stored.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with process() as (_, graph):
        # The cancelled payment may have happened: nothing runs before somebody decides.
        with pytest.raises(runlog.ReconcileRequired):
            await graph.ainvoke(None, config, durability="sync")
    async with runlog.connect(url) as rl:
        [undecided] = [effect async for effect in rl.undecided(run_id)]
        await rl.decide(undecided, "done", result="paid c", who="bank", why="it has the payment", force=True)
    for _ in range(2):
        async with process() as (_, graph):
            state = await graph.ainvoke(None, config, durability="sync")
    assert sorted(ran) == ["a", "b", "c", "quick"] and state["log"] == ["paid a", "paid b", "paid c"]
