"""Values that a saver keeps: a loop that reads its own checkpoint gets copies, and unchanged values are not encoded again."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from runlog.langgraph import RunlogSaver
from runlog.langgraph._copies import Prefix, is_simple, mark_of, template_of
from runlog.langgraph._serde import StrictSerializer
from test_langgraph_faults import Cipher

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Word(enum.StrEnum):
    A = "a"


class Own(HumanMessage):
    """A message with a class of the application's."""


VALUES: list[Any] = [
    None,
    True,
    1,
    1.0,
    -0.0,
    "a",
    [],
    {},
    [1, [2.5, {"a": None}]],
    {"a": [True, 1, "1"]},
    HumanMessage("hello", id="1"),
    HumanMessage("hello", id="1", more=[1]),
    AIMessage("", tool_calls=[{"name": "book", "args": {"to": "LHR"}, "id": "c"}], id="2"),
    AIMessage("a", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("booked", tool_call_id="c"),
]
NOT_SIMPLE: list[Any] = [
    b"a",
    bytearray(b"a"),
    (1,),
    {1: 2},
    Word.A,
    {"a": b"b"},
    {1},
    Own("hello"),
    HumanMessage("a", more=b"b"),
]


def test_values_have_one_mark_exactly_if_they_are_encoded_equally():
    encoded = [StrictSerializer().dumps_typed(value) for value in VALUES]
    marks = [mark_of(value) for value in VALUES]
    assert None not in marks and len(set(marks)) == len(VALUES)
    assert [mark_of(StrictSerializer().loads_typed(each)) for each in encoded] == marks
    assert all(map(is_simple, VALUES)) and not any(map(is_simple, NOT_SIMPLE))


def test_a_copy_equals_its_value_and_shares_nothing_with_it():
    for value in VALUES:
        template = template_of(value)
        assert template is not None
        first, second = template.make(), template.make()
        assert (
            first == value
            and type(first) is type(value)
            and StrictSerializer().dumps_typed(first) == (StrictSerializer().dumps_typed(value))
        )
        if isinstance(first, HumanMessage):
            first.additional_kwargs["changed"] = True
        elif isinstance(first, dict):
            first["changed"] = True
        assert template.make() == second == value
    assert [template_of(value) for value in NOT_SIMPLE] == [None] * len(NOT_SIMPLE)


def test_a_prefix_begins_only_lists_with_the_same_values_and_types():
    some = [HumanMessage("a", id="1"), {"a": 1}, "a"]
    prefix = Prefix().with_items(some[:1])
    assert prefix is not None
    prefix = prefix.with_items(some[1:])
    assert prefix is not None and prefix.begins([*some, "b"]) is prefix
    assert Prefix().with_items(some).begins(some)  # pyright: ignore
    for other in (
        some[:2],
        [*some[:2], Word.A],
        [AIMessage("a", id="1"), *some[1:]],
        [Own("a", id="1"), *some[1:]],
        [some[0], {"a": True}, "a"],
        [some[0], {"a": 1.0}, "a"],
        [some[0], {"a": [1]}, "a"],
        [HumanMessage("b", id="1"), *some[1:]],
        [some[1], some[0], "a"],
    ):
        assert prefix.begins(other) is None


def put(saver: RunlogSaver, config: Any, **values: Any) -> Any:
    checkpoint = empty_checkpoint()
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint["channel_values"], checkpoint["channel_versions"] = values, versions
    return saver.put(config, checkpoint, {"source": "update"}, versions)


def values_in(saver: RunlogSaver) -> dict[str, Any]:
    found = saver.get_tuple(THREAD)
    assert found is not None
    return found.checkpoint["channel_values"]


class Counted(RunlogSaver):
    """Counts the bytes of answers and the encoded values."""

    def __enter__(self):
        super().__enter__()
        transport = self._shared.sync.transport
        self.received, send = 0, transport.send

        def counted(request):
            answer = send(request)
            self.received += len(answer.body)
            return answer

        transport.send = counted
        return self


@pytest.mark.parametrize("encrypts", [False, True])
def test_a_loop_reads_its_own_checkpoint_without_its_messages_and_encodes_new_ones_alone(
    url, prefix, monkeypatch, encrypts
):
    encoded = []
    dumps = StrictSerializer.dumps_typed
    monkeypatch.setattr(
        StrictSerializer, "dumps_typed", lambda self, value: encoded.append(value) or dumps(self, value)
    )
    serde = EncryptedSerializer(Cipher()) if encrypts else None
    with Counted.connect(url, prefix=prefix, serde=serde) as saver:
        messages: list[Any] = [HumanMessage("x" * 1000, id=str(nth)) for nth in range(200)]
        config = put(saver, THREAD, messages=messages)
        for nth in range(3):
            saver.received, encoded[:] = 0, []
            found = values_in(saver)
            assert found["messages"] == messages and saver.received < 20_000
            messages = [*found["messages"], AIMessage(f"new {nth}", id=f"new {nth}")]
            config = put(saver, config, messages=messages)
            assert [value for value in encoded if isinstance(value, HumanMessage)] == []
            assert messages[-1] in encoded
        with RunlogSaver.connect(url, prefix=prefix, serde=serde) as other:
            assert values_in(other)["messages"] == messages


def test_a_message_that_was_changed_in_place_is_stored_as_it_is_now(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver, RunlogSaver.connect(url, prefix=prefix) as other:
        messages = [HumanMessage("a", id="1"), HumanMessage("b", id="2"), HumanMessage("c", id="3")]
        config = put(saver, THREAD, messages=messages, note={"a": [1]})
        for change in (
            lambda: messages[0].additional_kwargs.update(seen=True),
            lambda: messages.__setitem__(1, AIMessage("b", id="2")),
            lambda: messages.pop(),
            lambda: messages.reverse(),
            lambda: messages.append(messages[0]),
        ):
            change()
            config = put(saver, config, messages=messages, note={"a": [True]})
            for reader in (saver, other):
                found = values_in(reader)
                assert found["messages"] == messages and json.dumps(found["note"]) == '{"a": [true]}'
        # A change of a value that was read changes no later answer.
        values_in(saver)["messages"][0].content = "changed"
        assert values_in(saver)["messages"] == messages


def test_a_checkpoint_of_another_saver_is_read_from_the_journal(url, prefix):
    with RunlogSaver.connect(url, prefix=prefix) as saver, RunlogSaver.connect(url, prefix=prefix) as other:
        put(saver, THREAD, messages=["of one"])
        assert values_in(saver) == {"messages": ["of one"]}
        found = other.get_tuple(THREAD)
        assert found is not None
        put(other, found.config, messages=["of one", "of the other"])
        assert values_in(saver) == {"messages": ["of one", "of the other"]}
        saver.delete_thread("t")
        assert saver.get_tuple(THREAD) is None and other.get_tuple(THREAD) is None
        put(saver, THREAD, messages=["again"])
        assert values_in(saver) == {"messages": ["again"]} == values_in(other)


def test_a_serializer_of_the_users_own_is_called_for_each_value(url, prefix):
    class Mine(JsonPlusSerializer):
        read = 0

        def loads_typed(self, data):
            Mine.read += 1
            return super().loads_typed(data)

    with RunlogSaver.connect(url, prefix=prefix, serde=Mine(allowed_msgpack_modules=None)) as saver:
        put(saver, THREAD, messages=["a", "b"])
        Mine.read = 0
        assert values_in(saver) == {"messages": ["a", "b"]} and Mine.read >= 2
