"""Lists of threads by their metadata: by the index where it has a thread, and the same answer where it has not."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import io
import json
import os
import subprocess
import sys
from unittest import mock

import msgspec
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from conftest import Server, create_token
from faults import SyncFaults
from runlog import Config
from runlog._drive import SyncDriver
from runlog.langgraph import RunlogSaver, _metadata, _threads
from runlog.langgraph import __main__ as show
from test_langgraph_faults import Cipher


class Tier(enum.StrEnum):
    GOLD = "gold"


@dataclasses.dataclass
class Booking:
    flight: str
    at: datetime.date


def put(saver, thread, number, metadata, **configurable):
    place = {"configurable": {"thread_id": thread, "checkpoint_ns": "", **configurable}}
    return saver.put(place, {**empty_checkpoint(), "id": f"{number:04}"}, {"step": number, **metadata}, {})


def threads(saver, **filter):
    found = [each.config["configurable"]["thread_id"] for each in saver.list(None, filter=filter)]
    assert found == sorted(found)
    return set(found)


def test_a_list_by_metadata_reads_the_threads_that_have_it(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver, RunlogSaver.connect(url, prefix=f"{prefix}other/") as other:
        for at in range(12):
            put(saver, f"t{at:02}", 1, {"user": f"u{at % 6}", "run_id": f"run-{at}"})
        put(saver, "t00", 2, {"user": "ada"})
        put(saver, "t01", 2, {"user": "u0"}, tenant=7)
        put(other, "x", 1, {"user": "u0"})
    config = Config(url)
    with RunlogSaver(config, prefix=prefix) as saver:
        transport = SyncFaults(config)
        saver._shared.sync = SyncDriver(transport)
        assert threads(saver, user="u3") == {"t03", "t09"}
        by_metadata, transport.count = transport.count, 0
        assert len(threads(saver, step=1)) == 12
        # Three more requests find the threads, and each thread that is left out costs at least three.
        assert by_metadata <= transport.count - 3 * 10 + 5
        assert threads(saver, user="u0") == {"t00", "t01", "t06"} and threads(saver, user="ada") == {"t00"}
        assert threads(saver, user="u0", tenant=7.0) == {"t01"} and threads(saver, user="u5", tenant=7) == set()
        saver.delete_for_runs(["run-3", "run-4"])
        assert threads(saver, user="u3") == {"t09"}
        saver.delete_thread("t09")
        put(saver, "t09", 1, {"user": "ada"})
        assert threads(saver, user="u3") == set() and threads(saver, user="ada") == {"t00", "t09"}
        saver.copy_thread("t09", "t10-copy")
        saver.copy_thread("t00", "t11-copy")
        assert threads(saver, user="ada") == {"t00", "t09", "t10-copy", "t11-copy"}


def test_a_thread_that_the_index_does_not_have_is_read(url, prefix, monkeypatch):
    with RunlogSaver.connect(url, prefix=prefix, allow=[Tier]) as saver:
        with monkeypatch.context() as older:
            older.setattr(_threads, "mark", lambda prefix: ("lg.other", "a version without the index"))
            older.setattr(_metadata, "entries", lambda *_: [])
            put(saver, "old", 1, {})
            put(saver, "old", 2, {"user": "u1"})
        put(saver, "many", 1, {f"name {at}": at for at in range(40)} | {"user": "u1"})
        put(saver, "enum", 1, {"tier": Tier.GOLD, "user": "u1"})
        put(saver, "list", 1, {"tags": ["a"], "user": "u1"})
        put(saver, "neither", 1, {"user": "u2"})
        assert threads(saver, user="u1") == {"old", "many", "enum", "list"}
        assert threads(saver, tier="gold") == {"enum"} and threads(saver, tags=["a"]) == {"list"}
        assert threads(saver, **{"name 39": 39}) == {"many"}


def test_the_index_has_no_encrypted_metadata(url, prefix, monkeypatch):
    sent = []
    with RunlogSaver.connect(url, prefix=prefix, serde=EncryptedSerializer(Cipher())) as saver:
        own = saver._shared.api.append
        spied = lambda run, records, **named: sent.extend(records) or own(run, records, **named)  # noqa: E731
        monkeypatch.setattr(saver._shared.api, "append", spied)
        put(saver, "t", 1, {"user": "u1"})
        assert threads(saver, user="u1") == {"t"} and threads(saver, user="u2") == set()
    keys = [key for record in sent if "event_index" in record for key in record["event_index"]["correlation_keys"]]
    assert [key["value"] for key in keys if key["key"] == "lg.metadata"] == [_metadata.any_metadata(prefix)[1]]


def test_threads_have_a_prefix_unless_a_program_names_another(url):
    with RunlogSaver.connect(url) as saver, RunlogSaver.connect([url]) as other:
        put(saver, "default prefix", 1, {})
        assert [each.config["configurable"]["thread_id"] for each in other.list(None)].count("default prefix") == 1
        saver.delete_thread("default prefix")


def shown(url, prefix, thread, *options, **environment):
    """The output of the command. Runs it in this process, because a new process needs a second to import LangGraph."""
    arguments, out, err = ["--server", url, "--prefix", prefix, thread, *options], io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["show", *arguments]),
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        return show.main(), out.getvalue(), err.getvalue()


def shown_by_a_process(url, prefix, thread):
    command = [sys.executable, "-m", "runlog.langgraph", "--server", url, "--prefix", prefix, thread]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_an_operator_reads_a_thread_without_its_types_and_runs_none(url, prefix, tmp_path):
    named = ["posix", "system", f"touch {tmp_path / 'ran'}"]
    hostile = msgspec.msgpack.encode(msgspec.msgpack.Ext(0, msgspec.msgpack.encode(named)))
    with RunlogSaver.connect(url, prefix=prefix, allow=[Booking]) as saver:
        saver.serde.dumps_typed, own = (
            lambda value: ("msgpack", hostile) if value == "hostile" else own(value),
            saver.serde.dumps_typed,
        )
        values = {
            "said": HumanMessage("to \x9b Łódź"),
            "booked": Booking("H7", datetime.date(2026, 1, 2)),
            "trap": "hostile",
        }
        place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        found = {
            **empty_checkpoint(),
            "id": "0001",
            "channel_values": values,
            "channel_versions": dict.fromkeys(values, 1),
        }
        config = saver.put(place, found, {"step": 1, "user": "ada"}, dict.fromkeys(values, 1))
        saver.put_writes(config, [("log", b"\xff")], "task-1")
    text = shown_by_a_process(url, prefix, "t")
    thread = json.loads(text)
    assert thread["metadata"] == {"step": 1, "user": "ada"}
    assert thread["writes"] == [{"task": "task-1", "channel": "log", "value": {"bytes": "ff"}}]
    assert (
        thread["values"]["said"] == {"content": "to \x9b Łódź", "type": "human"}
        and "\\u009b" in text
        and "Łódź" in text
    )
    assert thread["values"]["booked"] == {
        "test_langgraph_lists.Booking": {"flight": "H7", "at": {"datetime.date": [2026, 1, 2]}}
    }
    assert thread["values"]["trap"] == {"posix.system": named[2]} and not (tmp_path / "ran").exists()
    code, _, told = shown(url, prefix, "none")
    assert code == 1 and "has no checkpoint" in told and "--prefix" in told


def test_an_operator_sees_that_only_the_application_can_read_a_value(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix, serde=EncryptedSerializer(Cipher())) as saver:
        put(saver, "t", 1, {"user": "u1"})
    code, _, told = shown(url, prefix, "t")
    assert code == 1 and "msgpack+xor" in told


def test_an_operator_who_may_not_read_content_is_shown_a_masked_thread(prefix, tmp_path):
    file = tmp_path / "tokens.json"
    agent, operator, none = (
        create_token(file, *scopes) for scopes in (("append", "read_meta", "read_content"), ("read_meta",), ("append",))
    )
    running = Server(tmp_path / "data", "--tokens", str(file))
    try:
        with RunlogSaver(Config(running.url, token=agent), prefix=prefix) as saver:
            for number in (1, 2, 3):
                config = put(saver, "t", number, {"user": "secret"})
                saver.put_writes(config, [("log", "secret")], f"task-{number}")
        code, text, told = shown(running.url, prefix, "t", "--last", "2", RUNLOG_TOKEN=operator)
        assert code == 0 and "read_content" in told and "secret" not in text + told
        newest, older = (json.loads(part) for part in text.replace("}\n{", "}\0{").split("\0"))
        mask = {"masked": "internal"}
        assert newest["checkpoint"] == newest["metadata"] == newest["values"] == mask and newest["writes"] == [mask]
        assert newest["at"] > older["at"] and newest["record"] != older["record"]
        assert shown(running.url, prefix, "t", RUNLOG_TOKEN=agent)[1].count("secret") == 2
        code, text, told = shown(running.url, prefix, "t", RUNLOG_TOKEN=none)
        assert (code, text) == (1, "") and "forbidden" in told
    finally:
        running.stop()
