"""The types that a checkpoint, or a recorded answer of a tool, may have: a type that is not on the list is refused by
name."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import functools
import ipaddress
import json
import pathlib
import re
import uuid
import zoneinfo
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypedDict, TypeVar

import numpy
import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langgraph._internal import _serde
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, Field, SecretStr

import runlog
from runlog import Invalid, TypeNotAllowed, Usage, sync
from runlog.langchain import RunlogMiddleware
from runlog.langgraph import RunlogSaver
from runlog.langgraph._threads import Thread

T = TypeVar("T")


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Class(StrEnum):
    ECONOMY = "economy"


class Planet(Enum):
    EARTH = (5.97e24, 6.4e6)


class Place(NamedTuple):
    row: int
    letter: str


@dataclass
class Seat:
    place: Place
    color: Color


@dataclass(frozen=True)
class Cell:
    at: tuple[int, int]
    area: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.at[0] * self.at[1])


@dataclass
class Node:
    next: Node | None


class Booking(BaseModel):
    class Phase(Enum):
        PAID = "paid"

    phase: Phase
    seats: list[Seat]
    day: dt.date
    who: str = Field(alias="passenger")


class Box(BaseModel, Generic[T]):
    content: T


class Grid(BaseModel):
    visited: set[tuple[int, int]]


class Order(BaseModel):
    class Status(Enum):
        NEW = "new"

    status: Status = Status.NEW
    id: uuid.UUID | str = uuid.UUID(int=5)
    due: dt.date | str | list[int] = dt.date(2026, 11, 28)
    tags: set[int] | list[int] = {1}
    more: dict[str, Any] = {"color": Color.RED}


class Payment(BaseModel):
    class Status(Enum):
        OPEN = "open"

    status: Status = Status.OPEN


SEAT = Seat(Place(12, "A"), Color.RED)
BOOKING = Booking(phase=Booking.Phase.PAID, seats=[SEAT], day=dt.date(2026, 11, 28), passenger="Ada")

CHAIN = Node(None)
for _ in range(100):
    CHAIN = Node(CHAIN)

ALWAYS: list[Any] = [
    None, True, 7, 1.5, "text", b"bytes", bytearray(b"more"), [1, [2]], {"a": {1: 2}},
    {1, 2}, {(1, 2), (3, (4,))}, frozenset({"a", (1,)}), deque([1, 2]),
    dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC), dt.date(2026, 11, 28),
    dt.time(12, 30, tzinfo=dt.UTC), dt.timedelta(days=1, microseconds=5), dt.timezone(dt.timedelta(hours=1)),
    zoneinfo.ZoneInfo("Europe/London"), uuid.uuid4(), decimal.Decimal("1.10"), ipaddress.ip_address("::1"),
    ipaddress.ip_network("10.0.0.0/8"), pathlib.Path("/tmp/a"), re.compile("a+", re.I),
    HumanMessage("hello"), AIMessage("", tool_calls=[{"name": "book", "args": {}, "id": "1"}]), Document(page_content="d"),
    Send("node", {"a": 1}), Command(update={"a": {1, 2}}, goto="node"),
]  # fmt: skip
LISTED: list[Any] = [
    Color.RED, Level.HIGH, Class.ECONOMY, Place(1, "B"), SEAT, BOOKING, Box[Seat](content=SEAT), SecretStr("secret"),
    {"deep": [{"seat": SEAT}]}, Grid(visited={(1, 2)}), Order(), Payment(), Planet.EARTH, CHAIN,
    {Cell((2, 3))}, {Place(1, (1, 2))},
]  # fmt: skip


class State(TypedDict, total=False):
    value: Any
    names: Annotated[
        Booking | Level | Class | list[Box[Seat]] | SecretStr | Grid | Planet | Node | Cell | None, "an annotation"
    ]
    two: tuple[Order, Payment]
    only: Literal[Color.RED]


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def written_by_graph(saver: RunlogSaver, value: Any, schema: type) -> Any:
    graph = StateGraph(schema)
    graph.add_node("set", lambda _: {"value": value})
    graph.add_edge(START, "set")
    graph.add_edge("set", END)
    compiled = graph.compile(checkpointer=saver)
    thread = config(str(uuid.uuid4()))
    compiled.invoke({}, thread)
    return compiled.get_state(thread).values["value"]


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4()}/"


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


# Values that come back


@pytest.mark.parametrize("strict", [False, True], ids=["", "LANGGRAPH_STRICT_MSGPACK"])
def test_values_of_the_types_that_the_schema_of_a_graph_names_come_back(url, prefix, strict, monkeypatch):
    monkeypatch.setattr(_serde, "STRICT_MSGPACK_ENABLED", strict)
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        for value in [*ALWAYS, *LISTED]:
            assert same(written_by_graph(saver, value, State), value), value
        array = numpy.arange(6, dtype=">i4").reshape(2, 3)
        assert (written_by_graph(saver, array, State) == array).all()


def test_a_graph_that_was_compiled_without_a_saver_has_its_types_too(url, prefix):
    graph = StateGraph(State)
    graph.add_node("set", lambda _: {"value": BOOKING})
    graph.add_edge(START, "set")
    compiled = graph.compile()
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        compiled.checkpointer = saver
        compiled.invoke({}, config("t"))
        assert same(compiled.get_state(config("t")).values["value"], BOOKING)
        # The saver itself has no more types than before.
        with pytest.raises(
            TypeNotAllowed, match=r"checkpoint .* of thread t: the channel value .*test_types_of_values\.Booking"
        ):
            saver.get_tuple(config("t"))


class Untyped(TypedDict, total=False):
    value: Any


@pytest.mark.parametrize("value", LISTED, ids=lambda value: type(value).__name__)
def test_a_value_of_a_type_off_the_list_is_refused_by_name_when_it_is_written(url, prefix, value):
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        with pytest.raises(
            TypeNotAllowed, match=r"value cannot be stored: the type [\w.\[\]]+ is not allowed"
        ) as refused:
            written_by_graph(saver, value, Untyped)
        assert refused.value.action == "fix_the_input" and refused.value.happened == "nothing"
    listed = [
        Booking,
        Level,
        (Class.__module__, "Class"),
        Box[Seat],
        SecretStr,
        Grid,
        Order,
        Payment,
        Planet,
        Node,
        Cell,
    ]
    with RunlogSaver.connect(url, prefix=prefix, allow=listed) as saver:
        assert same(written_by_graph(saver, value, Untyped), value)


def test_a_value_that_would_not_come_back_is_refused_when_it_is_written(url, prefix):
    @dataclass
    class Unmade:
        key: str

        def __init__(self) -> None:
            self.key = "x"

    def local() -> type:
        class Color(Enum):
            BLUE = "blue"

        return Color

    one, other = local(), local()
    for allow, value, why in [
        ([Unmade], Unmade(), "Unmade cannot be made again: TypeError"),
        ([(__name__, "Unmade")], Unmade(), "Unmade of a stored value cannot be imported"),
        ([one, other], one.BLUE, r"2 types on the list are named test_types_of_values\.Color"),
        ([Order, Payment], Order.Status.NEW, r"2 types on the list are named test_types_of_values\.Status"),
        ([Color], one.BLUE, "'blue' is not a valid Color"),
        ([one], Color.RED, "'red' is not a valid .*Color"),
        ([one], other.BLUE, "is not the type with its name on the list"),
        ([], object(), r"a value of the type builtins\.object cannot be stored"),
        ([Order, Payment], Order(more={"status": Payment.Status.OPEN}), "Order is not read back unchanged"),
        ([], numpy.array(["x", None], dtype=object), "OBJECT array"),
        ([], re.compile("a" * 2000), "longer than 1024 characters"),
    ]:
        with (
            RunlogSaver.connect(url, prefix=prefix, allow=allow) as saver,
            pytest.raises(Invalid, match=f"the channel value.*{why}"),
        ):
            saver.put(config("t"), {**empty_checkpoint(), "channel_values": {"value": value}}, {}, {})


@dataclass
class Failure(Exception):
    code: int

    def __init__(self, response: int) -> None:
        self.code = response


@pytest.mark.parametrize("allow", [[], [Failure]], ids=["", "allowed"])
def test_an_exception_that_cannot_be_stored_is_stored_as_its_text(url, prefix, allow):
    def fails(_: State) -> State:
        raise Failure(7)

    graph = StateGraph(State).add_node("a", fails).add_edge(START, "a")
    with RunlogSaver.connect(url, prefix=prefix, allow=allow) as saver:
        compiled = graph.compile(checkpointer=saver)
        with pytest.raises(Failure):
            compiled.invoke({}, config("t"))
        assert compiled.get_state(config("t")).tasks[0].error == "Failure(code=7)"
    # LangGraph's own serializer stored it by name, and the thread must stay readable.
    with RunlogSaver.connect(url, prefix=prefix, serde=Raw()) as stranger:
        put = stranger.put(config("old"), empty_checkpoint(), {}, {})
        old = JsonPlusSerializer().dumps_typed(Failure(7))
        stranger.put_writes(put, [("__error__", old)], "task")
    with RunlogSaver.connect(url, prefix=prefix, allow=allow) as saver:
        (write,) = saver.get_tuple(config("old")).pending_writes
        assert "Failure" in write[2]


# Types that only a part of a graph names


class Inner(TypedDict):
    seat: Seat


def paint(color: Color) -> dict[str, Any]:
    return {"value": color}


@entrypoint()
def choose(seat: Seat) -> Booking:
    return BOOKING


def test_a_graph_has_the_types_of_its_subgraphs_and_of_the_functions_of_its_nodes(url, prefix):
    def ask(state: Inner) -> dict[str, Any]:
        return {"seat": interrupt(state["seat"])}

    inner = StateGraph(Inner).add_node("ask", ask).add_edge(START, "ask").compile()

    class Ask:
        def __call__(self, level: Level) -> dict[str, Any]:
            return {}

    def fly(planet: Planet, runtime: Unknown) -> dict[str, Any]:  # noqa: F821
        return {}

    outer = StateGraph(Untyped).add_node("inner", inner).add_node("paint", paint)
    outer.add_node("ask", Ask()).add_node("fly", functools.partial(fly, runtime=None))
    sent = [Send("inner", {"seat": SEAT}), Send("paint", Color.RED), Send("ask", Level.HIGH), Send("fly", Planet.EARTH)]
    outer.add_conditional_edges(START, lambda _: sent)
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph = outer.compile(checkpointer=saver)
        (asked,) = graph.invoke({}, config("t"))["__interrupt__"]
        assert same(asked.value, SEAT)
        assert graph.invoke(Command(resume=SEAT), config("t"))["value"] is Color.RED
        choose.checkpointer = saver
        assert choose.invoke(SEAT, config("f")) == BOOKING
        assert same(choose.get_state(config("f")).values, BOOKING)


# Payloads of a stranger


class Raw:
    """A serializer of a stranger: writes the bytes that it was given as a value."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return obj if isinstance(obj, tuple) else JsonPlusSerializer(allowed_msgpack_modules=None).dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        raise AssertionError("reads nothing")


def extension(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(parts))


def payloads(mark: Any) -> dict[str, tuple[str, bytes]]:
    """Values that make a file, if a reader calls the names in them."""
    command = f"touch {mark}"
    system = extension(0, "os", "system", command)
    lc = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command]}
    network = extension(0, "ipaddress", "IPv6Network", "::/0")
    found: dict[str, Any] = {
        "one argument": system,
        "arguments": extension(1, "os", "system", [command]),
        "named arguments": extension(2, "os", "system", {"command": command}),
        "method": extension(3, "subprocess", "Popen", command, "__call__"),
        "method of a safe type": extension(3, "pathlib", "Path", str(mark), "touch"),
        "pydantic v1": extension(4, "os", "system", {"command": command}),
        "pydantic": extension(5, "os", "system", {"command": command}),
        "in a set": extension(0, "builtins", "set", [system]),
        "in a message": extension(5, "langchain_core.messages.human", "HumanMessage", {"content": system}),
        "in an array": extension(6, system, [1], "C", b"1"),
        "in a snapshot": ormsgpack.Ext(7, ormsgpack.packb(system)),
        "as a key": {"list": [{"a": system}]},
        "an unknown extension": ormsgpack.Ext(9, ormsgpack.packb(system)),
        "a network as the parts": ormsgpack.Ext(0, ormsgpack.packb(network)),
        "a network as a set": extension(0, "builtins", "set", network),
        "a network as a deque": extension(0, "collections", "deque", network),
        "a network as arguments": extension(1, "pathlib", "Path", network),
        "a network as a shape": extension(6, "<i4", network, "C", b"1234"),
        "a slow pattern": extension(1, "re", "compile", ["[a-\uffff]" * 10_000, 2]),
        "the form of pickle": extension(0, "datetime", "datetime", b"\x07\xe7\x01\xff\xff\xff\xff\0\0\0"),
        "a name that is none": extension(0, ["os"], "system", command),
    }
    encoded: dict[str, tuple[str, bytes]] = {
        name: ("msgpack", ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)) for name, value in found.items()
    }
    encoded["json"] = ("json", json.dumps(lc).encode())
    encoded["pickle"] = ("pickle", f"cos\nsystem\n(S{command!r}\ntR.".encode())
    encoded["too many types in types"] = ("msgpack", nested(5000, 0))
    encoded["too deep"] = ("msgpack", nested(64, 1000))
    return encoded


def nested(types: int, arrays: int) -> bytes:
    """It overflows the stack of ormsgpack, and of the process."""
    data = ormsgpack.packb(1)
    for _ in range(types):
        data = b"\x91" * arrays + ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


NAMES = list(payloads(""))


def test_the_payloads_run_in_langgraphs_own_serializer(tmp_path):
    """The tests below can fail."""
    mark = tmp_path / "ran"
    data = payloads(mark)
    JsonPlusSerializer(allowed_msgpack_modules=True).loads_typed(data["in a set"])
    assert mark.exists()
    mark.unlink()
    JsonPlusSerializer(pickle_fallback=True).loads_typed(data["pickle"])
    assert mark.exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_that_names_a_function_is_refused_and_nothing_is_called(url, prefix, tmp_path, name):
    mark = tmp_path / "ran"
    payload = payloads(mark)[name]
    empty = empty_checkpoint()
    with RunlogSaver.connect(url, prefix=prefix, serde=Raw()) as stranger:
        stranger.put(config("in a channel"), {**empty, "channel_values": {"value": payload, "list": [payload]}}, {}, {})
        put = stranger.put(config("in a write"), empty, {}, {})
        stranger.put_writes(put, [("value", payload)], "task")
    readers = [RunlogSaver.connect(url, prefix=prefix)]
    for serde in (JsonPlusSerializer(), EncryptedSerializer(cipher=None)):
        readers.append(RunlogSaver.connect(url, prefix=prefix, serde=serde))
    for saver in readers:
        with saver:
            graph = StateGraph(State).add_node("a", lambda state: {}).add_edge(START, "a").compile(checkpointer=saver)
            reads = [saver.get_tuple, lambda thread, saver=saver: list(saver.list(thread)), graph.get_state]
            for thread in ("in a channel", "in a write"):
                for read in [*reads, lambda thread, graph=graph: graph.invoke({}, thread)]:
                    with pytest.raises(Invalid, match=r"^checkpoint \S+ of thread in a .*: .* value cannot be read: "):
                        read(config(thread))
    assert not mark.exists()


def test_a_serializer_that_would_call_anything_is_refused(url, prefix):
    class Own(JsonPlusSerializer):
        """A user's."""

    for serde, why in [
        (JsonPlusSerializer(pickle_fallback=True), "pickle_fallback"),
        (EncryptedSerializer(cipher=None, serde=JsonPlusSerializer(pickle_fallback=True)), "pickle_fallback"),
        (Own(allowed_msgpack_modules=True), "Own calls any name"),
        (JsonPlusSerializer(__unpack_ext_hook__=lambda *_: None), "calls any name"),
    ]:
        with pytest.raises(Usage, match=why):
            RunlogSaver.connect(url, prefix=prefix, serde=serde)
    with pytest.raises(Usage, match=r"allow= has no effect on .*Raw"):
        RunlogSaver.connect(url, prefix=prefix, serde=Raw(), allow=[Seat])
    for wrong, why in [(Seat, r"allow=\[Seat\]"), (["app.Seat"], "not 'app.Seat'"), ([SEAT], "not Seat")]:
        with pytest.raises(Usage, match=why):
            RunlogSaver.connect(url, prefix=prefix, allow=wrong)
    listed = JsonPlusSerializer(allowed_msgpack_modules=[Seat, Place, Color])
    with RunlogSaver.connect(url, prefix=prefix, serde=listed) as saver:
        assert same(written_by_graph(saver, SEAT, Untyped), SEAT)
    with RunlogSaver.connect(url, prefix=prefix, serde=Own(allowed_msgpack_modules=None)) as saver:
        assert same(written_by_graph(saver, SEAT, State), SEAT)


@pytest.mark.parametrize(
    "entry",
    [
        {"checkpoint": ["null", ""]},
        {"metadata": ["null", ""]},
        {"checkpoint": 5},
        {"channels": [["a", False, 1]]},
    ],
    ids=str,
)
def test_what_no_saver_wrote_is_refused_by_name(url, prefix, entry, monkeypatch):
    put = Thread.put

    def broken(thread, writer, ns, checkpoint, parent, metadata, pieces, found, entries):
        return put(thread, writer, ns, checkpoint, parent, metadata, pieces, {**found, **entry}, entries)

    with RunlogSaver.connect(url, prefix=prefix) as saver:
        monkeypatch.setattr(Thread, "put", broken)
        saver.put(config("t"), empty_checkpoint(), {}, {})
    with (
        RunlogSaver.connect(url, prefix=prefix) as reader,
        pytest.raises(Invalid, match=r"^checkpoint \S+ of thread t"),
    ):
        reader.get_tuple(config("t"))


# Answers of LangChain tools


class Request:
    """The request of a tool call, as a middleware receives it."""

    tool_call: ClassVar = {"name": "book", "args": {"seat": "1A"}, "id": "call-1"}
    state: ClassVar = {"messages": []}


def test_a_command_of_a_tool_has_the_types_of_the_list(url, run_id):
    def answer(_: Any) -> Command:
        return Command(update={"seat": SEAT, "days": {1, 2}}, goto="end")

    with sync.connect(url) as rl:
        middleware = RunlogMiddleware(allow=[Seat])
        with rl.run(run_id):
            assert middleware.wrap_tool_call(Request(), answer) == answer(None)
        with rl.run(run_id):
            assert same(middleware.wrap_tool_call(Request(), lambda _: pytest.fail("ran")), answer(None))
        with rl.run(f"{run_id}/x"), pytest.raises(TypeNotAllowed, match=r"test_types_of_values\.Seat"):
            RunlogMiddleware().wrap_tool_call(Request(), answer)
        with rl.run(f"{run_id}/x"), pytest.raises(runlog.ResultNotRecorded, match=r"test_types_of_values\.Seat"):
            RunlogMiddleware(allow=[Seat]).wrap_tool_call(Request(), lambda _: pytest.fail("ran"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_answer_that_names_a_function_is_refused_and_nothing_is_called(url, run_id, tmp_path, name):
    mark = tmp_path / "ran"
    kind, data = payloads(mark)[name]
    recorded = {"serialized": [kind, base64.b64encode(data).decode()]}
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.call("book", {"id": "call-1", "args": {"seat": "1A"}}, lambda _: recorded)
        with rl.run(run_id), pytest.raises(Invalid, match="the recorded answer of book cannot be read: "):
            RunlogMiddleware().wrap_tool_call(Request(), lambda _: pytest.fail("ran"))
    assert not mark.exists()


@pytest.mark.parametrize(
    "recorded", [5, None, "serialized", [1], {"content": "a", "status": "evil"}, {"booking": "H7"}]
)
def test_a_recorded_answer_that_no_middleware_wrote_is_refused_with_the_form_that_it_must_have(url, run_id, recorded):
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.call("book", {"id": "call-1", "args": {"seat": "1A"}}, lambda _: recorded)
        with (
            rl.run(run_id),
            pytest.raises(Invalid, match=r'the recorded answer of book is not of the form {"content": '),
        ):
            RunlogMiddleware().wrap_tool_call(Request(), lambda _: pytest.fail("ran"))
