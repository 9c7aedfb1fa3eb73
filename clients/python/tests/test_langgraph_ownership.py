"""Who owns a thread: the 15 clauses of `write_ownership`, which was proposed for LangGraph's conformance suite as
langchain-ai/langgraph#8894. Each has its number there.

A worker claims a thread and writes through the saver that the claim returns. Each write of a superseded worker is refused and
not stored. Reads go through a saver that claimed nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, MessagesState, StateGraph

from runlog import Fenced, Usage
from runlog.langgraph import RunlogSaver


@pytest.fixture
async def saver(url, prefix) -> AsyncIterator[RunlogSaver]:
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        yield saver


def place(thread_id="t", checkpoint_id=None):
    named = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **named}}


def id_of(config) -> str:
    return config["configurable"]["checkpoint_id"]


async def put(writer, thread_id="t", parent=None, step=0) -> str:
    """Puts a checkpoint, and returns its id."""
    return id_of(await writer.aput(place(thread_id, parent), empty_checkpoint(), {"source": "loop", "step": step}, {}))


async def put_writes(writer, checkpoint_id, value, task="task", channel="ch", thread_id="t") -> None:
    await writer.aput_writes(place(thread_id, checkpoint_id), [(channel, value)], task)


async def tip(saver, thread_id="t") -> str | None:
    found = await saver.aget_tuple(place(thread_id))
    return found and id_of(found.config)


async def all_ids(saver, thread_id="t") -> list[str]:
    return [id_of(found.config) async for found in saver.alist(place(thread_id))]


async def written(saver, checkpoint_id) -> list:
    """The values of the pending writes."""
    found = await saver.aget_tuple(place(checkpoint_id=checkpoint_id))
    return [value for _, _, value in found.pending_writes]


async def superseded(saver):
    """An owner that lost the thread after one checkpoint, the owner that took it over, and the checkpoint."""
    old = await saver.aclaim_write_ownership("t")
    first = await put(old)
    return old, await saver.aclaim_write_ownership("t"), first


async def refused(write) -> None:
    """Expects the error that the suite recognises as lost ownership without importing its class."""
    with pytest.raises(Fenced) as error:
        await write
    assert error.value.is_stale_write_owner_error is True


async def test_01_a_claim_gives_something_that_writes(saver):
    owner = await saver.aclaim_write_ownership("t")
    assert callable(owner.aput) and callable(owner.aput_writes)


async def test_02_a_checkpoint_of_the_owner_is_stored(saver):
    owner = await saver.aclaim_write_ownership("t")
    assert await put(owner) == await tip(saver)


async def test_03_a_write_of_the_owner_is_stored(saver):
    owner = await saver.aclaim_write_ownership("t")
    first = await put(owner)
    await put_writes(owner, first, "owned")
    assert await written(saver, first) == ["owned"]


async def test_04_a_superseded_owner_learns_it_when_it_puts_a_checkpoint(saver):
    old, _, _ = await superseded(saver)
    await refused(put(old, step=1))


async def test_05_a_checkpoint_of_a_superseded_owner_is_not_stored(saver):
    old, _, first = await superseded(saver)
    await refused(put(old, step=1))
    assert await all_ids(saver) == [first]


async def test_06_a_superseded_owner_does_not_fork_the_chain(saver):
    old, new, first = await superseded(saver)
    second = await put(new, parent=first, step=1)
    await refused(put(old, parent=first, step=1))
    assert await tip(saver) == second
    assert await all_ids(saver) == [second, first]


async def test_07_a_superseded_owner_learns_it_when_it_puts_writes(saver):
    old, _, first = await superseded(saver)
    await refused(put_writes(old, first, "stale"))


async def test_08_a_write_of_a_superseded_owner_is_not_stored(saver):
    old, _, first = await superseded(saver)
    await refused(put_writes(old, first, "stale", task="a task of its own"))
    assert await written(saver, first) == []


async def test_09_a_superseded_owner_does_not_displace_the_owners_write(saver):
    old, new, first = await superseded(saver)
    await put_writes(new, first, "current")
    await refused(put_writes(old, first, "stale"))
    assert await written(saver, first) == ["current"]


@pytest.mark.parametrize("channel", ["__resume__", "__error__", "__interrupt__", "__scheduled__"])
async def test_10_nor_on_a_channel_whose_last_write_counts(saver, channel):
    old, new, first = await superseded(saver)
    await put_writes(new, first, "current", channel=channel)
    await refused(put_writes(old, first, "stale", channel=channel))
    assert await written(saver, first) == ["current"]


async def test_11_a_superseded_owner_stays_superseded(saver):
    old, _, first = await superseded(saver)
    await refused(put(old, step=1))
    await refused(put(old, step=2))
    # Reading gives the thread back to no owner.
    assert await tip(old) == first
    await refused(put(old, parent=first, step=3))
    await refused(old.adelete_thread("t"))
    assert await all_ids(saver) == [first]


async def test_12_a_thread_is_owned_by_itself(saver):
    owner = await saver.aclaim_write_ownership("t")
    await saver.aclaim_write_ownership("another")
    assert await put(owner, step=1) == await tip(saver)


async def test_13_the_new_owner_continues(saver):
    _, new, first = await superseded(saver)
    second = await put(new, parent=first, step=1)
    await put_writes(new, second, "recovered")
    assert await tip(saver) == second
    assert await written(saver, second) == ["recovered"]


async def test_14_a_write_that_the_owner_repeats_is_not_refused(saver):
    owner = await saver.aclaim_write_ownership("t")
    first = await put(owner)
    await put_writes(owner, first, "v")
    await put_writes(owner, first, "v")
    await owner.acheck_write_ownership()
    assert await written(saver, first) == ["v"]


async def test_15_reading_needs_no_ownership(saver):
    owner = await saver.aclaim_write_ownership("t")
    first = await put(owner)
    assert await tip(saver) == first and await all_ids(saver) == [first]
    # And takes nothing from the owner.
    await put(owner, parent=first, step=1)


async def test_an_owner_checks_its_ownership_and_a_later_saver_supersedes_it(saver):
    owner = await saver.aclaim_write_ownership("t")
    await owner.acheck_write_ownership()
    first = await put(owner)
    # A saver takes a thread over by reading it and writing.
    assert await tip(saver) == first
    second = await put(saver, parent=first, step=1)
    await refused(owner.acheck_write_ownership())
    assert await all_ids(saver) == [second, first]


async def test_two_workers_run_one_graph_and_the_one_that_was_superseded_ends(saver):
    """A worker is frozen in a node while another worker resumes its thread: their writes have the same task id."""
    answers: list[str] = []

    async def answer(state: MessagesState):
        if not answers:
            answers.append("the second worker's")
            await graph.compile(checkpointer=await saver.aclaim_write_ownership("t")).ainvoke(
                None, config, durability="sync"
            )
            return {"messages": [("ai", "the first worker's")]}
        return {"messages": [("ai", answers[-1])]}

    graph, config = StateGraph(MessagesState), {"configurable": {"thread_id": "t"}}
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    owner = await saver.aclaim_write_ownership("t")
    with pytest.raises(Fenced):
        await graph.compile(checkpointer=owner).ainvoke({"messages": [("user", "hello")]}, config, durability="sync")
    state = await graph.compile(checkpointer=saver).aget_state(config)
    assert [message.content for message in state.values["messages"]] == ["hello", "the second worker's"]
    assert state.next == ()


def test_the_same_without_async(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        old = saver.claim_write_ownership("t")
        old.check_write_ownership()
        first = old.put(place(), empty_checkpoint(), {}, {})
        new = saver.claim_write_ownership("t")
        for write in (
            lambda: old.put(first, empty_checkpoint(), {}, {}),
            lambda: old.put_writes(first, [("ch", 1)], "task"),
            old.check_write_ownership,
        ):
            with pytest.raises(Fenced, match="claim the thread again"):
                write()
        new.put(first, empty_checkpoint(), {}, {})
        with pytest.raises(Usage, match="enter that one"), new:
            pass
