"""Ownership of threads, and the records of a saver."""

from __future__ import annotations

import asyncio
import json
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from conftest import command
from runlog import Config, Fenced
from runlog._http import AsyncHttp
from runlog.langgraph import RunlogSaver


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def chain(saver, *nodes):
    """A graph that runs nodes one after the other; each returns its addition to the log."""
    graph = StateGraph(State)
    before = START
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(before, node.__name__)
        before = node.__name__
    graph.add_edge(before, END)
    return graph.compile(checkpointer=saver)


async def one(state: State):
    return {"log": ["one"]}


async def two(state: State):
    return {"log": ["two"]}


def gate():
    reached, go = asyncio.Event(), asyncio.Event()

    async def waiting(state: State):
        reached.set()
        await go.wait()
        return {"log": ["waited"]}

    return waiting, reached, go


def forks(checkpoints):
    parents = [c.parent_config["configurable"]["checkpoint_id"] for c in checkpoints if c.parent_config]
    return len(parents) - len(set(parents))


async def history(saver, config):
    return [c async for c in saver.alist({"configurable": {**config["configurable"], "checkpoint_ns": ""}})]


def anomalies(url, run):
    return json.loads(command(url, "anomalies", run, "--json").stdout)["anomalies"]


async def test_a_superseded_saver_is_fenced_and_the_chain_does_not_fork(url, prefix, config):
    waiting, reached, go = gate()
    async with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        old = asyncio.ensure_future(chain(a, one, waiting, two).ainvoke({"log": ["old"]}, config, durability="sync"))
        await reached.wait()
        await chain(b, one, two).ainvoke({"log": ["new"]}, config)
        # Reading does not give the thread back to the loop that lost it.
        await chain(a, one).aget_state(config)
        async for _ in chain(a, one).aget_state_history(config):
            pass
        go.set()
        with pytest.raises(Fenced) as error:
            await old
        assert error.value.action == "stop"
        assert forks(await history(b, config)) == 0
        state = await chain(b, one, two).aget_state(config)
        assert state.values["log"] == ["old", "one", "new", "one", "two"] and state.next == ()
        # A new loop of the old saver reads the thread and continues.
        await chain(a, one).ainvoke({"log": ["again"]}, config)
        assert (await chain(b, one).aget_state(config)).values["log"][-2:] == ["again", "one"]
        assert forks(await history(a, config)) == 0


async def test_reading_an_own_old_checkpoint_does_not_give_the_thread_back_to_the_loop_that_lost_it(
    url, prefix, config
):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        own = await a.aput(place, empty_checkpoint(), {}, {})
        await b.aput((await b.aget_tuple(place)).config, empty_checkpoint(), {}, {})
        await a.aget_tuple(own)  # `get_state` of the past, while the old loop runs
        with pytest.raises(Fenced):
            await a.aput(own, empty_checkpoint(), {}, {})
        # After that it is a requested fork.
        await a.aget_tuple(own)
        await a.aput(own, empty_checkpoint(), {}, {})


async def test_workers_take_turns_on_a_thread(url, prefix, config):
    savers = [RunlogSaver.connect(url, prefix=prefix) for _ in range(4)]
    for saver in savers:
        await saver.__aenter__()
    for turn in range(8):
        await chain(savers[turn % 4], one).ainvoke({"log": [str(turn)]}, config)
    await chain(savers[3], one).ainvoke({"log": ["8"]}, config)
    log = (await chain(savers[0], one).aget_state(config)).values["log"]
    assert log == [entry for turn in range(9) for entry in (str(turn), "one")]
    assert forks(await history(savers[1], config)) == 0
    # One claim for each turn, except for the saver that had the last turn.
    assert json.loads(command(url, "recover", f"{prefix}t 1", "--json").stdout)["epoch"] == 8
    assert anomalies(url, f"{prefix}t 1") == []
    for saver in savers:
        await saver.__aexit__()


async def test_a_thread_is_read_and_updated_while_its_loop_runs_and_claimed_once(url, prefix, config):
    waiting, reached, go = gate()
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = chain(saver, one, waiting, two)
        task = asyncio.ensure_future(graph.ainvoke({"log": ["start"]}, config, durability="sync"))
        await reached.wait()
        assert (await graph.aget_state(config)).next == ("waiting",)
        await graph.aupdate_state(config, {"log": ["from outside"]}, as_node="one")
        go.set()
        assert (await task)["log"] == ["start", "one", "waited", "two"]
        assert json.loads(command(url, "recover", f"{prefix}t 1", "--json").stdout)["epoch"] == 1


async def test_parallel_subgraphs_with_memories_of_their_own(url, prefix, config, monkeypatch):
    monkeypatch.setattr("runlog.langgraph._index.HEADS_MAX", 3)
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        sub = StateGraph(State)
        sub.add_node("one", one)
        sub.add_node("two", two)
        sub.add_edge(START, "one")
        sub.add_edge("one", "two")
        graph = StateGraph(State)
        names = [f"sub{n}" for n in range(7)]
        for name in names:
            graph.add_node(name, sub.compile(checkpointer=True))
            graph.add_edge(START, name)
        compiled = graph.compile(checkpointer=saver)
        await compiled.ainvoke({"log": []}, config)
        result = await compiled.ainvoke({"log": ["x"]}, config)
        assert result["log"].count("x") >= 1
        for name in (names[0], names[-1]):
            found = await saver.aget_tuple({"configurable": {**config["configurable"], "checkpoint_ns": name}})
            assert found is not None and found.checkpoint["channel_values"]["log"][-2:] == ["one", "two"]
        assert json.loads(command(url, "recover", f"{prefix}t 1", "--json").stdout)["epoch"] == 1
        assert anomalies(url, f"{prefix}t 1") == []


async def test_two_savers_that_write_without_turns_make_one_chain(url, prefix, config):
    async with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        await chain(a, one).ainvoke({"log": ["first"]}, config)
        for _ in range(4):
            outcomes = await asyncio.gather(
                *(chain(saver, one, two).ainvoke({"log": ["both"]}, config) for saver in (a, b)), return_exceptions=True
            )
            assert all(isinstance(outcome, dict | Fenced) for outcome in outcomes)
        assert forks(await history(a, config)) == 0


async def test_writes_that_langgraph_ignores_leave_no_anomaly(url, prefix, config):
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        stored = await saver.aput(
            {"configurable": {**config["configurable"], "checkpoint_ns": ""}}, empty_checkpoint(), {}, {}
        )
        for value in ("first", "second"):
            await saver.aput_writes(stored, [("ch", value), ("__error__", value)], "task")
        found = await saver.aget_tuple(stored)
        assert sorted(w[1:] for w in found.pending_writes) == [("__error__", "second"), ("ch", "first")]
        assert anomalies(url, f"{prefix}t 1") == []


async def test_writes_arrive_before_the_checkpoint_that_comes_after_them(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        stored = await saver.aput(place, empty_checkpoint(), {}, {})
        writes = [asyncio.ensure_future(saver.aput_writes(stored, [("ch", n)], f"task {n}")) for n in range(10)]
        await asyncio.gather(asyncio.ensure_future(saver.aput(stored, empty_checkpoint(), {}, {})), *writes)
    lines = command(url, "show", f"{prefix}t 1", "--json").stdout.strip().split("\n")
    kinds = [(json.loads(line)["payload"] or {}).get("payload_type") for line in lines]
    assert [kind for kind in kinds if kind] == ["checkpoint", *["writes"] * 10, "checkpoint"]


async def test_a_deleted_thread_starts_again_with_the_same_ids(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        checkpoint = {**empty_checkpoint(), "channel_values": {"a": 1}, "channel_versions": {"a": 1}}
        for value in (1, 2, 3):
            checkpoint["channel_values"] = {"a": value}
            stored = await saver.aput(place, checkpoint, {"step": value}, {"a": 1})
            await saver.aput_writes(stored, [("ch", value)], "task")
            async with RunlogSaver.connect(url, prefix=prefix) as other:
                found = await other.aget_tuple(stored)
                assert found.checkpoint["channel_values"] == {"a": value}
                assert [w[2] for w in found.pending_writes] == [value]
                assert len(await history(other, config)) == 1
            await saver.adelete_thread("t 1")
            assert await saver.aget_tuple(stored) is None and await saver.aget_tuple(config) is None
        assert anomalies(url, f"{prefix}t 1") == []


async def test_a_value_of_more_than_a_mebibyte_is_given_back(url, prefix, config):
    large = "x" * (3 << 20)

    async def node(state: State):
        return {"log": [large]}

    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        await chain(saver, node, one).ainvoke({"log": []}, config)
        async with RunlogSaver.connect(url, prefix=prefix) as other:
            assert (await chain(other, node, one).aget_state(config)).values["log"] == [large, "one"]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Counting(AsyncHttp):
    sent = 0

    async def send(self, request):
        self.sent += len(request.body or b"")
        return await super().send(request)


async def test_each_message_is_stored_once(url, prefix, config):
    async def answer(state: Chat):
        return {"messages": [AIMessage("y" * 500)]}

    graph = StateGraph(Chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        driver = saver._shared.async_
        await driver.transport.close()
        driver.transport = counting = Counting(Config(url))
        compiled, sizes = graph.compile(checkpointer=saver), []
        for turn in range(30):
            before = counting.sent
            await compiled.ainvoke({"messages": [HumanMessage(f"{turn}" + "x" * 500)]}, config)
            sizes.append(counting.sent - before)
        assert max(sizes[25:]) < 1.15 * max(sizes[2:6]), sizes
        assert len((await compiled.aget_state(config)).values["messages"]) == 60


async def test_a_checkpoint_that_did_not_arrive_whole_is_not_shown(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}

    class CutOff(AsyncHttp):
        async def send(self, request):
            body = json.loads(request.body) if request.body else None
            if isinstance(body, list):
                request = type(request)(request.method, request.path, json.dumps(body[0]).encode(), request.headers)
                await super().send(request)
                raise KeyboardInterrupt
            return await super().send(request)

    async with RunlogSaver.connect(url, prefix=prefix) as saver, RunlogSaver.connect(url, prefix=prefix) as other:
        first = await saver.aput(place, empty_checkpoint(), {}, {})
        driver = saver._shared.async_
        await driver.transport.close()
        driver.transport = CutOff(Config(url))
        with pytest.raises(KeyboardInterrupt):
            await saver.aput(first, empty_checkpoint(), {}, {})
        assert [c.config for c in await history(other, config)] == [first]
        assert (await other.aget_tuple(config)).config == first
        # The same object sends it again before it reads.
        await driver.transport.close()
        driver.transport = AsyncHttp(Config(url))
        second = await saver.aget_tuple(config)
        assert second.parent_config == first
        await saver.aput(second.config, empty_checkpoint(), {}, {})
        assert len(await history(other, config)) == 3 and forks(await history(other, config)) == 0


class Listening(AsyncHttp):
    """Records the requested paths, and the sizes of the answers, bytes."""

    def __init__(self, config):
        super().__init__(config)
        self.paths, self.received = [], 0

    async def send(self, request):
        answer = await super().send(request)
        self.paths.append(request.path)
        self.received += len(answer.body)
        return answer


async def listening(saver, url):
    driver = saver._shared.async_
    await driver.transport.close()
    driver.transport = found = Listening(Config(url))
    return found


def with_id(number):
    return {**empty_checkpoint(), "id": f"{number:04}"}


async def listed(saver, place, **terms):
    return [c.checkpoint["id"] async for c in saver.alist(place, **terms)]


async def test_the_newest_checkpoints_of_a_long_thread_are_listed_without_reading_all_of_it(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        sizes, at, put = [], place, 0
        for count in (20, 80):
            for number in range(put, count):
                at = await saver.aput(at, with_id(number), {"step": number}, {})
            put = count
            async with RunlogSaver.connect(url, prefix=prefix) as other:
                heard = await listening(other, url)
                assert await listed(other, place, limit=3) == [f"{count - n:04}" for n in (1, 2, 3)]
                sizes.append(heard.received)
        assert sizes[1] < 1.1 * sizes[0], sizes
        # Across pages, with a filter and an end; what is deleted on the way is left out.
        before = {"configurable": {**place["configurable"], "checkpoint_id": "0040"}}
        assert await listed(saver, place, limit=2, before=before) == ["0039", "0038"]
        assert await listed(saver, place, limit=2, filter={"step": 7}) == ["0007"]
        assert await listed(saver, at, limit=2) == ["0079"]
        await saver.aput(place, {**with_id(80), "id": "0080"}, {"step": 80, "run_id": "gone"}, {})
        await saver.adelete_for_runs(["gone"])
        assert await listed(saver, place, limit=12) == [f"{n:04}" for n in range(79, 67, -1)]


async def test_checkpoints_are_listed_in_the_order_of_their_writes_whatever_their_ids(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        for number in (3, 9, 5, 7, *range(10, 40), 8):
            await saver.aput(place, with_id(number), {}, {})
        assert await listed(saver, place, limit=2) == ["0008", "0039"]
        assert await listed(saver, place) == [f"{n:04}" for n in (8, *range(39, 9, -1), 7, 5, 9, 3)]
        assert await listed(saver, place, limit=100) == await listed(saver, place)


async def test_the_server_copies_a_thread_into_a_new_one_and_the_saver_into_any_other(url, prefix, config):
    place = {"configurable": {**config["configurable"], "checkpoint_ns": ""}}
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        for number in range(5):
            value = "x" * (2 << 20) if number == 3 else number
            checkpoint = {**with_id(number), "channel_values": {"a": value}, "channel_versions": {"a": number}}
            stored = await saver.aput(place, checkpoint, {"step": number}, {"a": number})
            await saver.aput_writes(stored, [("ch", number)], "task")

        async def shown(thread_id):
            where = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            return [
                (c.checkpoint["id"], c.checkpoint["channel_values"], c.metadata["step"], c.pending_writes)
                async for c in saver.alist(where)
            ]

        heard = await listening(saver, url)
        await saver.acopy_thread("t 1", "new")
        assert len([path for path in heard.paths if "/copies" in path]) == 1 and len(heard.paths) < 12, heard.paths
        await saver.aput({"configurable": {"thread_id": "other", "checkpoint_ns": ""}}, with_id(0), {"step": 0}, {})
        heard.paths.clear()
        await saver.acopy_thread("t 1", "other")
        assert not [path for path in heard.paths if "/copies" in path]
        expected = await shown("t 1")
        assert len(expected) == 5 and await shown("new") == expected and (await shown("other"))[:4] == expected[:4]
        # A copy can continue, and a copy of a deleted thread lacks the deleted checkpoints.
        assert len(await history(saver, {"configurable": {"thread_id": "new"}})) == 5
        await saver.aput({"configurable": {"thread_id": "new", "checkpoint_ns": ""}}, with_id(9), {"step": 9}, {})
        assert [id for id, *_ in await shown("new")] == ["0009", "0004", "0003", "0002", "0001", "0000"]
        await saver.adelete_thread("t 1")
        await saver.aput(place, with_id(1), {"step": 1}, {})
        heard.paths.clear()
        await saver.acopy_thread("t 1", "again")
        assert [id for id, *_ in await shown("again")] == ["0001"]
        assert not [path for path in heard.paths if "/copies" in path]


def test_a_sync_graph(url, prefix, config):
    def step(state: State):
        return {"log": ["step"]}

    with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = chain(saver, step)
        graph.invoke({"log": ["a"]}, config)
        assert graph.invoke({"log": ["b"]}, config)["log"] == ["a", "step", "b", "step"]
        assert len(list(graph.get_state_history(config))) == 6
        assert len(list(saver.list(None, limit=2))) == 2
        past = list(graph.get_state_history(config))[3]
        assert graph.invoke(None, past.config)["log"] == past.values["log"]
        saver.delete_thread("t 1")
        assert graph.get_state(config).values == {}


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after its answer"])
def test_a_saver_works_after_a_put_is_interrupted_at_any_request(url, prefix, after):
    from faults import Interrupted, SyncFaults, interrupt

    place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for at in range(1, 9):
        with RunlogSaver.connect(url, prefix=f"{prefix}{at}/") as saver:
            saver._shared.sync.transport.close()
            faults = saver._shared.sync.transport = SyncFaults(Config(url))
            faults.arm(at, after, interrupt)
            found, checkpoint = None, empty_checkpoint()
            checkpoint["channel_values"] = {"a": [1, 2, 3]}
            interrupted = 0
            for _ in range(3):
                try:
                    stored = saver.put(place, checkpoint, {}, {})
                    saver.put_writes(stored, [("ch", 1)], "task")
                    found = saver.get_tuple(place)
                    break
                except Interrupted:
                    interrupted += 1
            assert interrupted == 1 or at > 6
            assert found.checkpoint["channel_values"] == {"a": [1, 2, 3]}
            assert [w[2] for w in found.pending_writes] == [1]


@pytest.mark.parametrize("owner", ["nobody", "first", "second"])
def test_two_savers_that_take_turns_between_any_two_requests_make_one_chain(url, prefix, owner):
    """The second saver reads the thread and puts a whole checkpoint between two requests of the first saver."""
    from faults import SyncFaults

    def run_loop(saver, place):
        """Runs two steps of a loop: reads the thread, and puts two checkpoints."""
        try:
            found = saver.get_tuple(place)
            stored = saver.put(found.config if found else place, empty_checkpoint(), {}, {})
            saver.put_writes(stored, [("ch", 1)], "task")
            saver.put(stored, empty_checkpoint(), {}, {})
            return "done"
        except Fenced:
            return "fenced"

    outcomes = set()
    with RunlogSaver.connect(url, prefix=prefix) as first, RunlogSaver.connect(url, prefix=prefix) as second:
        first._shared.sync.transport.close()
        faults = first._shared.sync.transport = SyncFaults(Config(url))
        for at in range(1, 14):
            place = {"configurable": {"thread_id": f"t {at}", "checkpoint_ns": ""}}
            if owner != "nobody":
                assert run_loop(first if owner == "first" else second, place) == "done"

            def take_over(place=place):
                faults.at = None
                outcomes.add(("second", run_loop(second, place)))

            faults.arm(at, True, take_over)
            outcomes.add(("first", run_loop(first, place)))
            faults.at = None
            found = list(second.list(place))
            assert forks(found) == 0 and sum(c.parent_config is None for c in found) == 1, at
            assert run_loop(first, place) == run_loop(second, place) == "done"
            assert forks(list(first.list(place))) == 0
    assert {("first", "done"), ("first", "fenced"), ("second", "done")} <= outcomes
