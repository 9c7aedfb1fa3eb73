"""Several loops of one saver object on a thread, as after a double click in one web process."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from runlog import Fenced
from runlog.langgraph import RunlogSaver
from test_langgraph import chain, forks, gate, history, one, two, with_id

PLACE = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


async def ask(state: State):
    return {"log": [interrupt("may I?")]}


def asking(saver):
    """A graph that is interrupted once."""
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def read_together(saver, monkeypatch):
    """Lets the first two reads of the thread see the same state."""
    read, reads, both = saver.aget_tuple, [], asyncio.Event()

    async def aget_tuple(config):
        found = await read(config)
        reads.append(found)
        if len(reads) == 2:
            both.set()
        await both.wait()
        return found

    monkeypatch.setattr(saver, "aget_tuple", aget_tuple)


async def at_once(graphs, inputs, config, **options):
    """The inputs whose loops came to their end, of two loops at once. The other loop gets `Fenced`."""
    loops = [graph.ainvoke(given, config, **options) for graph, given in zip(graphs, inputs, strict=True)]
    ended = await asyncio.gather(*loops, return_exceptions=True)
    assert [type(end) for end in ended].count(Fenced) == 1, ended
    return [given for given, end in zip(inputs, ended, strict=True) if not isinstance(end, BaseException)]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "new"])
async def test_of_two_loops_of_one_saver_one_ends_and_no_turn_is_lost(
    url, prefix, config, monkeypatch, begun, durability
):
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        kept = (await chain(saver, one).ainvoke({"log": ["before"]}, config))["log"] if begun else []
        with monkeypatch.context() as patched:
            read_together(saver, patched)
            graph = chain(saver, one, two)
            [said] = await at_once([graph, graph], [{"log": ["a"]}, {"log": ["b"]}], config, durability=durability)
        kept += [*said["log"], "one", "two"]
        assert (await graph.aget_state(config)).values["log"] == kept
        assert forks(await history(saver, config)) == 0
        # The loop that was refused reads the thread again, and continues.
        assert (await graph.ainvoke({"log": ["again"]}, config))["log"] == [*kept, "again", "one", "two"]


async def test_of_two_answers_to_one_interrupt_one_counts(url, prefix, config, monkeypatch):
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        await asking(saver).ainvoke({"log": ["pay"]}, config)
        with monkeypatch.context() as patched:
            read_together(saver, patched)
            graph = asking(saver)
            [said] = await at_once([graph, graph], [Command(resume="yes"), Command(resume="no")], config)
        state = await graph.aget_state(config)
        assert state.values["log"] == ["pay", said.resume] and state.next == ()
        assert forks(await history(saver, config)) == 0


async def test_a_loop_whose_thread_is_deleted_ends_and_does_not_write_it_again(url, prefix, config):
    waiting, reached, go = gate()
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = chain(saver, one, waiting, two)
        loop = asyncio.ensure_future(graph.ainvoke({"log": ["old"]}, config, durability="sync"))
        await reached.wait()
        await saver.adelete_thread("t 1")
        go.set()
        with pytest.raises(Fenced, match="was deleted after this loop read it"):
            await loop
        assert await saver.aget_tuple(config) is None and await history(saver, config) == []
        assert (await chain(saver, one).ainvoke({"log": ["new"]}, config))["log"] == ["new", "one"]


async def test_an_earlier_checkpoint_is_continued_as_often_as_it_is_read(url, prefix, config):
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = chain(saver, one)
        await graph.ainvoke({"log": ["first"]}, config)
        earlier = (await graph.aget_state(config)).config
        for said in ("second", "another second", "a third"):
            assert (await graph.ainvoke({"log": [said]}, earlier))["log"] == ["first", "one", said, "one"]


async def test_of_loops_that_read_an_earlier_checkpoint_at_once_one_continues(url, prefix, config, monkeypatch):
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = chain(saver, one)
        await graph.ainvoke({"log": ["first"]}, config)
        earlier = (await graph.aget_state(config)).config
        with monkeypatch.context() as patched:
            read_together(saver, patched)
            await at_once([graph, graph], [{"log": ["second"]}, {"log": ["another second"]}], earlier)
        # After that each loop that reads it continues it.
        assert (await graph.ainvoke({"log": ["a third"]}, earlier))["log"] == ["first", "one", "a third", "one"]


def test_the_same_without_async(url, prefix):
    of_loop = {"source": "loop", "step": 1}
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        assert saver.get_tuple(PLACE) is None
        first = saver.put(PLACE, with_id(1), of_loop, {})
        second = saver.put(first, with_id(2), of_loop, {})
        for parent in (PLACE, first):
            with pytest.raises(Fenced, match="continued by another loop"):
                saver.put(parent, with_id(5), of_loop, {})
        # A loop that puts its checkpoint again, and a change of the state, are no other loops.
        assert saver.put(first, with_id(2), of_loop, {}) == second
        saver.put(first, with_id(3), {"source": "update", "step": 1}, {})
        saver.get_tuple(first)
        saver.put(first, with_id(4), of_loop, {})
