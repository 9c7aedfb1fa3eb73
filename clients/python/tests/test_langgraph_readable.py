"""The values of a thread are JSON in the journal, which an operator can read, and come back byte for byte."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import uuid
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

import values
from conftest import command
from runlog import Invalid, TypeNotAllowed
from runlog._json import encode
from runlog.langgraph import RunlogSaver
from runlog.langgraph._pieces import Form
from runlog.langgraph._readable import DEPTH_MAX, encoded, readable
from runlog.langgraph._serde import StrictSerializer

LANGGRAPH = JsonPlusSerializer(allowed_msgpack_modules=None)
THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@dataclasses.dataclass
class Seat:
    row: int
    day: dt.date


def msgpack(value: Any) -> bytes:
    kind, data = LANGGRAPH.dumps_typed(value)
    assert kind == "msgpack"
    return data


def test_values_have_this_shape():
    """Operators and their programs read it: README, "What operators see"."""
    for value, shown in (
        ({"to": "LHR", "seats": 2, "price": 1.0, "open": None}, {"to": "LHR", "seats": 2, "price": 1.0, "open": None}),
        ([True, 2**63, -0.5], [True, 2**63, -0.5]),
        (
            HumanMessage("to London", id="1"),
            {
                "$type": "langchain_core.messages.human:HumanMessage",
                "value": {
                    "content": "to London",
                    "additional_kwargs": {},
                    "response_metadata": {},
                    "type": "human",
                    "name": None,
                    "id": "1",
                },
                "form": 5,
                "method": "model_validate_json",
            },
        ),
        (
            Seat(1, dt.date(2026, 1, 2)),
            {
                "$type": f"{__name__}:Seat",
                "value": {"row": 1, "day": {"$type": "datetime:date", "value": [2026, 1, 2], "form": 1}},
                "form": 2,
            },
        ),
        ({"raw": b"\xff"}, {"raw": {"$bytes": "/w=="}}),
        ({1: "a"}, {"$map": [[1, "a"]]}),
        ({"$type": "a"}, {"$map": [["$type", "a"]]}),
        (float("inf"), {"$float": "inf"}),
    ):
        assert json.dumps(readable(msgpack(value))) == json.dumps(shown)


def test_any_nesting_comes_back_byte_for_byte():
    some: list[Any] = [value for _, value in values.nestings(300, 3)]
    some += [
        Send("book", {"messages": [AIMessage("", tool_calls=[{"name": "a", "args": {"x": {1.5}}, "id": "c"}])]}),
        [uuid.UUID(int=5), decimal.Decimal("1.10"), dt.datetime.now(dt.UTC), float("nan"), "a" * 70_000, -(2**63)],
        {"$a": {"$b": {2: {"$c": b""}}}, "": [[], {}]},
    ]
    shown = 0
    for value in some:
        try:
            kind, data = LANGGRAPH.dumps_typed(value)
        except (TypeError, ValueError):
            continue  # LangGraph does not store it
        if kind == "msgpack":
            found = readable(data)
            assert found is not None and encoded(json.loads(encode(found))) == data, value
            shown += 1
    assert shown > 250


def test_a_value_that_has_no_such_json_stays_encoded():
    deep: Any = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    form = Form(StrictSerializer())
    plain = form.encode(deep, "it")
    piece: Any = form.seal(plain)
    assert piece[0] == "msgpack" and form.open(piece, "it") == plain


@pytest.mark.parametrize(
    "value",
    [
        {"$type": "posix:system", "value": "touch ran", "form": 0},
        [{"$type": "posix:system", "value": "touch ran", "form": 0}],
        {"$type": "builtins:eval", "value": ["1"], "form": 1},
        {"a": {"$map": [["b", {"$type": "os:system", "value": {"command": "touch ran"}, "form": 2}]]}},
        {"$type": "langchain_core.load.load:loads", "value": "{}", "form": 4, "method": "loads"},
    ],
    ids=str,
)
def test_json_that_names_a_function_is_refused_and_nothing_is_called(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    form = Form(StrictSerializer())
    with pytest.raises(TypeNotAllowed, match="is not allowed, and was not called"):
        form.decode(form.open(["value", value], "it"), "it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        {"$type": "a:b"},
        {"$type": 5, "value": 1, "form": 0},
        {"$type": "a:b", "value": 1, "form": "x"},
        {"$type": "a:b", "value": 1, "form": 2**40},
        {"$bytes": "not base64"},
        {"$bytes": 5},
        {"$float": "x"},
        {"$map": 5},
        {"$map": [[1]]},
        {"$map": [[[], 1]]},
        {"$later": 1},
        2**70,
        json.loads("[" * 100 + "]" * 100),
    ],
    ids=str,
)
def test_json_that_no_saver_wrote_is_refused(value):
    form = Form(StrictSerializer())
    with pytest.raises(Invalid, match="it cannot be read"):
        form.decode(form.open(["value", value], "it"), "it")


def test_an_operator_reads_values_metadata_and_writes_in_the_records(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix, allow=[Seat]) as saver:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [HumanMessage("to London")], "seat": Seat(12, dt.date(2026, 1, 2))}
        checkpoint["channel_versions"] = {"messages": "1", "seat": "1"}
        put = saver.put(THREAD, checkpoint, {"source": "update", "user": "u7"}, {"messages": "1", "seat": "1"})  # pyright: ignore
        saver.put_writes(put, [("messages", AIMessage("B-1009"))], "task")
    shown = command(url, "show", f"{prefix}t", "--raw", "--json").stdout
    payloads = [json.loads(line)["payload"] for line in shown.splitlines()]
    [loop] = [payload for payload in payloads if payload["type"] == "loop_checkpoint"]
    [_, message], [_, seat] = loop["messages"]
    assert message["value"]["content"] == "to London" and seat["value"]["row"] == 12
    trajectory = json.loads(command(url, "export", f"{prefix}t").stdout)
    assert [(step["source"], step["message"]) for step in trajectory["steps"]] == [("user", "to London")]
    assert trajectory["extra"]["messages_left_out"] == {"other_value": 1}
    assert loop["state"]["langgraph"]["entry"]["metadata"] == ["value", {"source": "update", "user": "u7"}]
    recovered = command(url, "recover", f"{prefix}t").stdout
    assert '["value",{"source":"update","user":"u7"}]' in recovered
    [writes] = [bytes.fromhex(of["bytes"]).decode() for of in payloads if of.get("payload_type") == "writes"]
    assert json.loads(writes)["writes"][0][2][1]["value"]["content"] == "B-1009"
