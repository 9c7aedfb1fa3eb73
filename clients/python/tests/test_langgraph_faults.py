"""Threads that meet faults: clocks that differ, removed and lost content, two workers, prefixes that overlap."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import time
import types
import uuid
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from conftest import Server, command
from faults import SyncFaults
from runlog import Config, Conflict, Fenced, MissingContent, Usage, sync
from runlog.langgraph import RunlogSaver
from runlog.langgraph._threads import Thread
from test_langgraph import chain, forks, one, with_id

OLD_THREAD = Path(__file__).with_name("old_thread.json")
PLACE = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def epoch_of(url, run):
    return json.loads(command(url, "recover", run, "--json").stdout)["epoch"]


def checkpoint(number, **values):
    return {**with_id(number), "channel_values": values, "channel_versions": dict.fromkeys(values, number)}


def place(thread_id, ns=""):
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}


# Clocks


async def test_a_worker_with_a_slow_clock_is_refused_and_fences_no_writer(url, prefix, config, monkeypatch):
    async with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        await chain(a, one).ainvoke({"log": ["first"]}, config)
        with monkeypatch.context() as behind:
            behind.setattr(ids, "_last_v6_timestamp", None)
            behind.setattr(ids, "time", types.SimpleNamespace(time_ns=lambda: time.time_ns() - 600 * 10**9))
            with pytest.raises(Conflict, match=r"clock of this machine is behind .* by at least \d+\.\d+ s") as error:
                await chain(b, one).ainvoke({"log": ["second"]}, config, durability="sync")
        assert error.value.action == "retry"
        await chain(a, one).ainvoke({"log": ["third"]}, config)
        assert (await chain(b, one).aget_state(config)).values["log"] == ["first", "one", "third", "one"]
        assert epoch_of(url, f"{prefix}t 1") == 1


def test_the_newest_checkpoint_is_the_last_one_that_was_applied(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        first = saver.put(PLACE, with_id(1), {}, {})
        saver.put(first, with_id(5), {}, {})
        fork = saver.put(first, with_id(3), {}, {})
        with RunlogSaver.connect(url, prefix=prefix) as other:
            assert other.get_tuple(PLACE).config == fork
            assert [found.checkpoint["id"] for found in other.list(PLACE)] == ["0003", "0005", "0001"]
            assert [found.checkpoint["id"] for found in other.list(PLACE, limit=1)] == ["0003"]
            other.prune(["t"])
            assert [found.checkpoint["id"] for found in other.list(PLACE)] == ["0003"]


# Content that was removed or lost


@pytest.fixture
def own_server(tmp_path):
    running = Server(tmp_path / "journal")
    yield running
    running.stop()


def remove(url, *families):
    for family in families:
        done = command(
            url, "retention", family, "--until", "2100-01-01T00:00:00Z", "--who", "a test", "--why", "age", "--yes"
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("families", [["loop_checkpoint"], ["host_payload"], ["loop_checkpoint", "host_payload"]])
async def test_a_thread_continues_after_its_content_was_removed(own_server, prefix, config, caplog, families):
    url = own_server.url
    async with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        for _ in range(2):
            await a.adelete_thread("t 1")  # the thread is in another incarnation
            await chain(a, one).ainvoke({"log": ["first"]}, config)
        remove(url, *families)
        caplog.clear()
        kept = ["first", "one"] if families == ["host_payload"] else []
        assert (await chain(b, one).aget_state(config)).values.get("log", []) == kept
        warned = [record.levelno for record in caplog.records if prefix in record.getMessage()]
        assert warned == ([logging.WARNING] if "loop_checkpoint" in families else [])
        for saver, turn in ((a, "second"), (b, "third"), (a, "fourth")):
            kept = (await chain(saver, one).ainvoke({"log": [turn]}, config))["log"]
        assert kept[-6:] == ["second", "one", "third", "one", "fourth", "one"]
        assert [found async for found in b.alist(config)]
        await b.aprune(["t 1"])
        assert (await chain(a, one).aget_state(config)).values["log"] == kept
        remove(url, *families)
        await b.adelete_thread("t 1")
        assert await a.aget_tuple(config) is None
        await chain(a, one).ainvoke({"log": ["again"]}, config)
        assert len([found async for found in b.alist(config)]) == 3


async def test_a_thread_whose_first_message_was_removed_warns_and_begins_again(own_server, prefix, config, caplog):
    url = own_server.url
    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        await chain(saver, one).ainvoke({"log": ["old" * 1000]}, config)
        remove(url, "loop_checkpoint")
        # Its base was removed, and this writer does not know that.
        values = {"log": ["old" * 1000, "one", "new"]}
        await saver.aput(
            place("t 1"), {**empty_checkpoint(), "channel_values": values}, {"source": "update", "step": 2}, {}
        )
        caplog.clear()
        async with RunlogSaver.connect(url, prefix=prefix) as other:
            await chain(other, one).ainvoke({"log": ["next"]}, config)
            assert "removed" in caplog.text
            assert (await chain(other, one).aget_state(config)).values["log"][-2:] == ["next", "one"]


async def test_a_thread_whose_content_is_lost_is_refused_by_name_and_can_be_deleted(
    own_server, prefix, config, tmp_path
):
    url = own_server.url

    async def large(state):
        return {"log": [os.urandom(2 << 20).hex()]}

    async with RunlogSaver.connect(url, prefix=prefix) as saver:
        await chain(saver, large).ainvoke({"log": ["first"]}, config)
        stored = [path for path in (tmp_path / "journal").rglob("*") if path.is_dir() and "content" in path.name]
        assert stored
        for folder in stored:
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
        async with RunlogSaver.connect(url, prefix=prefix) as other:
            with pytest.raises(MissingContent, match="is lost"):
                await other.aget_tuple(config)
            await other.adelete_thread("t 1")
            assert await other.aget_tuple(config) is None
            await chain(other, one).ainvoke({"log": ["again"]}, config)


def test_a_thread_whose_run_has_ended_cannot_be_deleted_and_the_error_says_what_can_be_done(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        saver.put(PLACE, with_id(1), {}, {})
        with sync.connect(url) as rl:
            rl.open(f"{prefix}t").end("cancelled")
        with pytest.raises(Conflict, match=r"neither written nor deleted, because .*`runlog retention`"):
            saver.delete_thread("t")
        assert saver.get_tuple(PLACE) is not None


# Two workers


def test_of_two_workers_on_a_thread_one_continues_whatever_the_moment(url, prefix):
    """The first worker has the thread, and puts a checkpoint between any two requests of the second worker's claim."""

    def attempt(put):
        with contextlib.suppress(Fenced):
            put()
            return True
        return False

    outcomes = set()
    with RunlogSaver.connect(url, prefix=prefix) as first, RunlogSaver.connect(url, prefix=prefix) as second:
        second._shared.sync.transport.close()
        faults = second._shared.sync.transport = SyncFaults(Config(url))
        for at in range(1, 8):
            where = place(f"t {at}")
            begun = first.put(where, empty_checkpoint(), {}, {})
            read = second.get_tuple(where).config
            puts = []

            def put_beside(puts=puts, begun=begun):
                faults.at = None
                puts.append(attempt(lambda: first.put(begun, empty_checkpoint(), {}, {})))

            faults.arm(at, True, put_beside)
            second_continues = attempt(lambda read=read: second.put(read, empty_checkpoint(), {}, {}))
            faults.at = None
            last = first._thread(f"t {at}")._written.get("")
            first_continues = last is not None and attempt(
                lambda last=last, where=where: first.put(
                    {"configurable": {**where["configurable"], "checkpoint_id": last}}, empty_checkpoint(), {}, {}
                )
            )
            assert second_continues or first_continues, at
            assert forks(list(second.list(where))) == 0
            outcomes.add((bool(puts and puts[0]), second_continues))
    assert {(True, False), (False, True)} <= outcomes


class Apart(SyncFaults):
    """Claims as through a server that compares the run with `only_if` before another server appends a record: `beside`."""

    beside = None

    def send(self, request):
        body = json.loads(request.body) if request.path.partition("?")[0].endswith("/claims") else {}
        if body.pop("only_if", None) is not None and self.beside is not None:
            self.beside, beside = None, self.beside
            beside()
            request = dataclasses.replace(request, body=json.dumps(body).encode())
        return super().send(request)


@contextlib.contextmanager
def on_two_servers(url, prefix):
    """Two savers, and their transports."""
    with RunlogSaver.connect(url, prefix=prefix) as first, RunlogSaver.connect(url, prefix=prefix) as second:
        for saver in (first, second):
            saver._shared.sync.transport.close()
            saver._shared.sync.transport = Apart(Config(url))
        yield (first, first._shared.sync.transport), (second, second._shared.sync.transport)


@pytest.mark.parametrize("claims_with", ["a checkpoint", "writes"])
@pytest.mark.parametrize("first", ["a checkpoint", "early writes", "a subgraph"])
def test_a_worker_continues_after_a_claim_that_came_too_late(url, prefix, claims_with, first):
    def continue_a():
        written.append(a.put(at, with_id(2), {}, {}))
        a.get_tuple(place("t", "sub"))

    with on_two_servers(url, prefix) as ((a, _), (b, claims)):
        at = a.put(PLACE, with_id(1), {}, {})
        read, written = b.get_tuple(PLACE).config, []
        claims.beside = continue_a
        with pytest.raises(Fenced):
            if claims_with == "writes":
                b.put_writes(read, [("log", "b")], "task")
            else:
                b.put(read, with_id(9), {}, {})
        [at] = written
        match first:
            case "a checkpoint":
                pass
            case "early writes":  # of the checkpoint that is put next
                child = {"configurable": {**at["configurable"], "checkpoint_id": "0003"}}
                a.put_writes(child, [("log", "a")], "task")
            case "a subgraph":
                a.put(place("t", "sub"), with_id(2), {}, {})
        at = a.put(at, with_id(3), {}, {})
        assert epoch_of(url, f"{prefix}t") == 3 and b.get_tuple(PLACE).config == at
        assert [found.checkpoint["id"] for found in b.list(PLACE)] == ["0003", "0002", "0001"]
        assert [value for *_, value in b.get_tuple(PLACE).pending_writes] == (["a"] if first == "early writes" else [])
        # The other worker ends, and a worker that reads the thread again continues.
        with pytest.raises(Fenced):
            b.put_writes(read, [("log", "b")], "task")
        at = b.put(b.get_tuple(PLACE).config, with_id(4), {}, {})
        with pytest.raises(Fenced):
            a.put(
                a.get_tuple({"configurable": {**PLACE["configurable"], "checkpoint_id": "0003"}}).config,
                with_id(5),
                {},
                {},
            )
        assert b.get_tuple(PLACE).config == at


@pytest.mark.parametrize(
    "order",
    [["checkpoint", "writes", "ahead"], ["writes", "checkpoint", "ahead"], ["ahead", "writes", "checkpoint"]],
    ids=" ".join,
)
async def test_a_loop_whose_claim_is_refused_claims_with_no_other_write(url, prefix, monkeypatch, order):
    """A loop puts a checkpoint and its writes at once, and runs ahead: it may put writes of a checkpoint that it puts later. All of
    them end, or the loop ends and has fenced the other worker."""
    claim, beside = Thread._append_claim, []

    def claim_after_writes(thread, claiming, parent, head):
        for write in beside:
            beside.clear()
            write()
        return claim(thread, claiming, parent, head)

    with RunlogSaver.connect(url, prefix=prefix) as a:
        first = a.put(PLACE, with_id(1), {}, {})
        async with RunlogSaver.connect(url, prefix=prefix) as b:
            read = (await b.aget_tuple(PLACE)).config

            def put_writes(number):
                child = {"configurable": {**read["configurable"], "checkpoint_id": with_id(number)["id"]}}
                return b.aput_writes(child, [("log", "b")], "task")

            puts = {"checkpoint": b.aput(read, with_id(2), {}, {}), "writes": put_writes(2), "ahead": put_writes(9)}
            # The other worker's writes change the run, and not the number of its next checkpoint.
            beside.append(lambda: a.put_writes(first, [("log", "a")], "task"))
            monkeypatch.setattr(Thread, "_append_claim", claim_after_writes)
            ended = await asyncio.gather(*(puts[each] for each in order), return_exceptions=True)
            assert [type(error) for error in ended] == [Fenced] * 3 and not beside
            assert epoch_of(url, f"{prefix}t") == 1
            last = a.put(first, with_id(3), {}, {})
            # A loop that reads the thread again continues it.
            found = await b.aget_tuple(PLACE)
            assert found.config == last
            await b.aput(found.config, with_id(4), {}, {})


def test_of_two_workers_that_fence_each_other_the_last_writer_continues(url, prefix):
    with on_two_servers(url, prefix) as ((a, of_a), (b, of_b)):
        first = a.put(PLACE, with_id(1), {}, {})
        read, put_by_a, put_by_b = b.get_tuple(PLACE).config, [], []

        def claim_again():
            # The claim of a worker that takes its thread back is too late, too: the other worker's record comes first.
            of_a.beside = lambda: put_by_b.append(b.put(b.get_tuple(PLACE).config, with_id(3), {}, {}))

        of_b.beside = lambda: put_by_a.append(a.put(first, with_id(2), {}, {}))
        with pytest.raises(Fenced):
            b.put(read, with_id(9), {}, {})
        claim_again()
        with pytest.raises(Fenced):
            a.put(put_by_a[0], with_id(8), {}, {})
        last = b.put(put_by_b[0], with_id(4), {}, {})
        assert a.get_tuple(PLACE).config == last
        assert [found.checkpoint["id"] for found in a.list(PLACE)] == ["0004", "0003", "0002", "0001"]


def test_a_claim_that_means_to_take_a_thread_over_is_not_undone(url, prefix):
    with on_two_servers(url, prefix) as ((a, _), (b, _)):
        first = a.put(PLACE, with_id(1), {}, {})
        owner = b.claim_write_ownership("t")
        for _ in range(2):
            with pytest.raises(Fenced):
                a.put(first, with_id(2), {}, {})
        owner.put(first, with_id(3), {}, {})
        assert epoch_of(url, f"{prefix}t") == 2


# Prefixes


def test_no_other_write_of_a_refused_loop_fences_the_worker_that_continues(url, prefix):
    run = f"{prefix}t"
    with RunlogSaver.connect(url, prefix=prefix) as a, RunlogSaver.connect(url, prefix=prefix) as b:
        first = a.put(PLACE, with_id(1), {}, {})
        read = b.get_tuple(PLACE).config
        second = a.put(first, with_id(2), {}, {})
        # A loop puts writes of a checkpoint while it puts the checkpoint. They may come first.
        child = {"configurable": {**read["configurable"], "checkpoint_id": with_id(3)["id"]}}
        for _ in range(2):
            with pytest.raises(Fenced):
                b.put_writes(child, [("log", "x")], "task")
            with pytest.raises(Fenced):
                b.put(read, with_id(3), {}, {})
        assert epoch_of(url, run) == 1
        a.put(second, with_id(4), {}, {})
        assert b.put(b.get_tuple(PLACE).config, with_id(5), {}, {})
        assert epoch_of(url, run) == 2


def test_savers_whose_prefixes_overlap_do_not_share_threads(url, prefix):
    with (
        RunlogSaver.connect(url, prefix=f"{prefix}a:") as short,
        RunlogSaver.connect(url, prefix=f"{prefix}a:b:") as long,
    ):
        long.put(place("c"), checkpoint(1, log=["secret"]), {"run_id": "r"}, {})
        short.put(place("d"), checkpoint(1, log=["own"]), {"run_id": "r"}, {})
        short.put(place("b:e"), checkpoint(1, log=["own"]), {"run_id": "other"}, {})
        for refused in (
            lambda: short.get_tuple(place("b:c")),
            lambda: list(short.list(place("b:c"))),
            lambda: short.put(place("b:c"), checkpoint(2), {}, {}),
            lambda: short.delete_thread("b:c"),
            lambda: short.copy_thread("b:c", "f"),
            lambda: short.claim_write_ownership("b:c"),
            lambda: long.get_tuple(place("e")),
        ):
            with pytest.raises(Conflict, match="of a saver with the prefix"):
                refused()
        assert [found.config["configurable"]["thread_id"] for found in short.list(None)] == ["b:e", "d"]
        short.delete_for_runs(["r"])
        assert short.get_tuple(place("d")) is None
        assert [found.checkpoint["channel_values"] for found in long.list(None)] == [{"log": ["secret"]}]


def test_a_text_is_no_list_of_threads_or_runs(url, prefix):
    """Each character would be an id: the threads `4` and `2` would be deleted."""
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        for thread in ("4", "2", "42"):
            saver.put(place(thread), checkpoint(1), {"run_id": thread}, {})
        for refused in (lambda: saver.prune("42", strategy="delete"), lambda: saver.delete_for_runs("42")):
            with pytest.raises(Usage, match=r"_ids are a list, not the text '42': \['42'\]"):
                refused()
        saver.prune(("42",), strategy="delete")
        assert sorted(found.config["configurable"]["thread_id"] for found in saver.list(None)) == ["2", "4"]


# Older versions


def test_a_thread_of_an_older_version_is_read_continued_and_deleted(url, prefix):
    """`old_thread.json` has the requests of an older version: a thread that was deleted and began again."""
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        for body in json.loads(OLD_THREAD.read_text().replace('"old/', f'"{prefix}')):
            records = body if isinstance(body, list) else [body]
            assert {o["outcome"] for o in saver._drive(saver._shared.api.append(f"{prefix}t", records))} == {"applied"}
        found = saver.get_tuple(PLACE)
        assert found.checkpoint["channel_values"] == {"log": ["m0", "m1", "m2"], "count": 3}
        assert found.metadata == {"step": 3, "user": "ada"} and found.pending_writes == [("task", "ch", 3)]
        assert saver.get_tuple(place("t", "sub")).checkpoint["channel_values"] == {"log": ["sub"]}
        assert [each.checkpoint["id"] for each in saver.list(PLACE)] == ["0003", "0002", "0001"]
        assert [each.checkpoint["id"] for each in saver.list(None, filter={"user": "ada"}, limit=2)] == ["0003", "0002"]
        saver.put(found.config, checkpoint(4, log=["m0", "m1", "m2", "m3"], count=4), {}, {})
        with RunlogSaver.connect(url, prefix=prefix) as other:
            assert other.get_tuple(PLACE).checkpoint["channel_values"] == {"log": ["m0", "m1", "m2", "m3"], "count": 4}
            other.prune(["t"])
            assert [each.checkpoint["id"] for each in other.list(PLACE)] == ["0004"]
            other.delete_thread("t")
            assert saver.get_tuple(PLACE) is None


# Encryption


class Cipher:
    """A cipher with a fresh nonce for each value. Not for use."""

    def encrypt(self, plaintext):
        nonce = os.urandom(16)
        return "xor", nonce + self._crypt(nonce, plaintext)

    def decrypt(self, ciphername, ciphertext):
        assert ciphername == "xor"
        return self._crypt(ciphertext[:16], ciphertext[16:])

    @staticmethod
    def _crypt(nonce, data):
        return bytes(a ^ b for a, b in zip(data, hashlib.shake_256(b"a key" + nonce).digest(len(data)), strict=True))


@contextlib.contextmanager
def encrypted(url, prefix):
    """A saver that encrypts, and the bodies that it sends."""
    bodies = []

    class Recording(SyncFaults):
        def send(self, request):
            bodies.append(request.body or b"")
            return super().send(request)

    with RunlogSaver.connect(url, prefix=prefix, serde=EncryptedSerializer(Cipher())) as saver:
        saver._shared.sync.transport.close()
        saver._shared.sync.transport = Recording(Config(url))
        yield saver, bodies


def test_two_workers_store_an_encrypted_value_once(url, prefix):
    log, sizes = [], []
    with encrypted(url, prefix) as (a, sent_a), encrypted(url, prefix) as (b, sent_b):
        for turn in range(30):
            saver, sent = ((a, sent_a), (b, sent_b))[turn // 3 % 2]
            found, before = saver.get_tuple(PLACE), sum(map(len, sent))
            log.append(f"{turn:02} " + uuid.uuid4().hex * 60)
            saver.put(
                found.config if found else PLACE, checkpoint(turn, log=list(log), same="x" * 2000), {}, {"log": turn}
            )
            sizes.append(sum(map(len, sent)) - before)
        assert max(sizes[20:]) < 1.2 * max(sizes[3:6]), sizes
        for saver in (a, b):
            assert saver.get_tuple(PLACE).checkpoint["channel_values"] == {"log": log, "same": "x" * 2000}
        assert len(list(a.list(PLACE))) == 30


def test_the_journal_does_not_show_which_encrypted_values_are_equal(url, prefix):
    with encrypted(url, prefix) as (saver, _):
        log = ["yes", "no", "yes", "yes"]
        first = saver.put(PLACE, checkpoint(1, log=log), {}, {})
        saver.put(first, checkpoint(2, log=[*log, "yes"]), {}, {})
        shown = saver._drive(saver._shared.api.checkpoint(f"{prefix}t"))["messages"]
        assert len({text for _, text in shown}) == 5
        assert saver.get_tuple(PLACE).checkpoint["channel_values"] == {"log": [*log, "yes"]}
