"""Tools have the signatures of ordinary functions. A function that no call can fit is refused when it is decorated."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import json
import re

import pytest
from pydantic import BaseModel

import runlog
from conftest import command
from runlog import Usage, sync
from runlog.langgraph import RunlogSaver


def arguments(url, run_id):
    lines = map(json.loads, command(url, "show", run_id, "--raw", "--json").stdout.splitlines())
    return [line["payload"]["arguments"] for line in lines if line["payload_type"] == "tool_call_requested"]


def test_a_call_has_the_arguments_that_it_was_given_by_name(url, run_id):
    @runlog.tool(key=lambda flight, seats: f"{flight}-{seats}")
    def book(call, flight: str, day: str = "today", *, seats: int = 1) -> list:
        return [flight, day, seats, call.idempotency_key]

    @runlog.tool
    def ping(call):
        return "pong"

    with sync.connect(url) as rl, rl.run(run_id) as run:
        assert book("HAT136", "Monday", seats=2) == ["HAT136", "Monday", 2, "HAT136-2"]
        assert book(run, day="Monday", flight="HAT136", seats=2) == ["HAT136", "Monday", 2, "HAT136-2"]
        assert book("HAT136", seats=3) == ["HAT136", "today", 3, "HAT136-3"]
        assert ping() == ping(run) == "pong"
    assert arguments(url, run_id) == [
        {"flight": "HAT136", "day": "Monday", "seats": 2},
        {"flight": "HAT136", "seats": 3},
        {},
        {},
    ]
    assert list(inspect.signature(book).parameters) == ["flight", "day", "seats"]


def test_a_tool_that_gets_another_parameter_with_a_default_makes_no_call_again(url, run_id):
    @runlog.tool(name="charge")
    def charge(call, order: dict):
        return "charged"

    @runlog.tool(name="charge")
    def charge_in(call, order: dict, currency: str = "EUR"):
        return f"charged {currency}"

    with sync.connect(url) as rl:
        with rl.run(run_id):
            charge({"id": 7})
        with rl.run(run_id):
            assert charge_in(order={"id": 7}) == "charged"
            assert charge_in({"id": 7}, "USD") == "charged USD"
            # This order looks like the arguments of the previous call.
            assert charge_in({"order": {"id": 7}, "currency": "USD"}) == "charged EUR"
    assert arguments(url, run_id) == [
        {"id": 7},
        {"order": {"id": 7}, "currency": "USD"},
        {"order": {"order": {"id": 7}, "currency": "USD"}},
    ]


async def test_a_signature_that_no_call_fits_is_refused_when_it_is_decorated():
    def no_call(flight: str): ...
    def nothing(): ...
    def only_a_keyword(*, call): ...
    def any_number(call, *seats): ...
    def any_names(call, **seats): ...
    def lazily(call, flight):
        yield flight

    async def streaming(call, flight):
        yield flight

    for function in (no_call, nothing, only_a_keyword, any_number, any_names, lazily, streaming, dict):
        with pytest.raises(Usage, match=rf"tool {function.__name__}: "):
            runlog.tool(function)
    for key in (lambda trip: trip, lambda flight, trip: trip, lambda flight, /: flight):
        with pytest.raises(Usage, match="tool book: its key"):

            @runlog.tool(key=key)
            def book(call, flight: str, seats: int): ...

    trip = "trip-3"

    @runlog.tool(key=lambda flight, trip=trip: f"{trip}-{flight}", plain_outside=True)
    def pay(made: runlog.Call, flight: str, seats: int):
        return made.idempotency_key

    assert pay("HAT136", 2) == "trip-3-HAT136"


def test_arguments_that_do_not_fit_are_refused_before_anything_is_recorded(url, run_id):
    @runlog.tool
    def book(call, flight: str):
        pytest.fail("ran")

    with sync.connect(url) as rl, rl.run(run_id) as run:
        for args, kwargs, why in (
            ((), {}, "missing a required argument: 'flight'"),
            ((run,), {}, "missing a required argument: 'flight'"),
            (("HAT136", 2), {}, "too many positional arguments"),
            (("HAT136",), {"seats": 2}, "unexpected keyword argument 'seats'"),
        ):
            with pytest.raises(Usage, match=f"tool book: .*{why}"):
                book(*args, **kwargs)
        assert rl.recover(run_id).pending == []


async def test_an_effect_of_the_wrong_kind_is_refused_or_its_result_is_kept(url, run_id):
    @runlog.tool
    async def ship(call, order: int): ...

    async def ships(call):
        return 1

    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(Usage, match="ship is an async function, but the run belongs to a plain connection"):
            ship(7)
        with pytest.raises(Usage, match="effect of ship is an async function"):
            run.call("ship", {}, ships)
        assert rl.recover(run_id).pending == []
        with pytest.raises(runlog.ReconcileRequired, match="its effect returned a coroutine"):
            run.call("ship", {}, lambda call: ships(call))
    async with runlog.connect(url) as rl:
        # It has run when it is seen to be plain.
        assert (await (await rl.open(f"{run_id}-2")).call("pay", {}, lambda call: "paid")).result == "paid"
        assert (await rl.recover(f"{run_id}-2")).pending == []


def test_a_result_comes_back_as_a_type_that_is_defined_after_the_tool_or_in_a_function(url, run_id):
    @runlog.tool
    def book(call, flight: Unknown) -> Booking:  # noqa: F821
        return Booking(flight)

    @dataclasses.dataclass
    class Booking:
        flight: str

    @runlog.tool
    def later(call) -> DefinedLater:
        return DefinedLater("H7")

    class Booker:
        def __call__(self, call, flight: str) -> DefinedLater:
            return DefinedLater(flight)

    booker = runlog.tool(name="booker")(functools.partial(Booker()))
    with sync.connect(url) as rl:
        for _ in range(2):
            with rl.run(run_id):
                assert book("H7") == Booking("H7") and later() == booker("H7") == DefinedLater("H7")


@dataclasses.dataclass
class DefinedLater:
    flight: str


def test_a_return_annotation_that_cannot_be_resolved_is_warned_of_in_the_first_process(url, run_id, caplog):
    @runlog.tool
    def find(call) -> Unknown:  # noqa: F821
        return {"flight": "H7"}

    with sync.connect(url) as rl:
        for _ in range(2):
            with rl.run(run_id):
                assert find() == {"flight": "H7"}
                assert caplog.text.count("the return annotation of find cannot be resolved") == 1


async def test_the_first_mistakes_say_what_to_write(url, run_id):
    @runlog.tool
    def pay(call, order: int): ...

    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(Usage, match=r"make it `async def`, or connect with `runlog\.sync\.connect`"):
            pay(7)
        with pytest.raises(Usage, match=r"use `async with`"), rl.run(run_id):
            pass
        with pytest.raises(Usage, match=r"use `async with`, .* `runlog\.sync\.connect`"), runlog.connect(url):
            pass
    with sync.connect(url) as rl:
        for wrong in (rl, rl.run(run_id)):
            with pytest.raises(Usage, match="use `with` without `async`"):
                async with wrong:
                    pass
        with pytest.raises(Usage, match=r"tool pay was given a run that is not open: use `with rl\.run"):
            pay(rl.run(run_id), 7)


@pytest.mark.parametrize("wrong", [7, None, b"trip", ["trip"]])
def test_a_name_or_a_key_that_is_no_text_is_refused_before_anything_runs(url, run_id, wrong):
    keyed = runlog.tool(name="pay", key=lambda order: wrong)(lambda call, order: pytest.fail("ran"))
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for refused in (
            lambda: rl.open(wrong),
            lambda: rl.recover(wrong),
            lambda: run.call(wrong, {}, lambda _: pytest.fail("ran")),
            lambda: run.turn(wrong, "said"),
            lambda: run.end("failed", wrong),
            lambda: sync.connect(url, agent=wrong),
            *((lambda: keyed(7),) if wrong is not None else ()),
        ):
            with pytest.raises(Usage, match="is a text, not a value of type"):
                refused()
        with pytest.raises(Usage, match="a number of seconds"):
            rl.open(run_id, unless_active="30")
        assert rl.recover(run_id).pending == rl.recover(run_id).completed == []


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("deadline", "30", "a number above 0"),
        ("deadline", -1, "a number above 0"),
        ("connect_deadline", None, "a number above 0"),
        ("read_back", float("nan"), "a number above 0"),
        ("calls_max", 0, "a number above 0"),
        ("traceparent", "00-aa", "traceparent is a function"),
        ("client_cert", "cert.pem", "client_cert has two files"),
        ("ca", "a\0b", "cannot be read"),
        ("token_file", "a\0b", "cannot be read"),
        ("token", b"secret", "the token is a text"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(setting, value, says):
    with pytest.raises(Usage, match=says):
        sync.connect("https://journal.example", **{setting: value})


def test_a_wrong_option_of_a_tool_is_refused_when_it_is_decorated():
    async def pay(call, order: int): ...

    for option, value, says in (
        ("key", "order-7", "its key is a function of its parameters, not 'order-7': `key=lambda order: …`"),
        ("timeout", "5", "timeout of pay is a number of seconds above 0, not '5'"),
        ("name", 5, "the name of a tool is a text"),
        ("name", "a\ud83d", "the name of a tool has half a character"),
    ):
        with pytest.raises(Usage, match=re.escape(says)):
            runlog.tool(**{option: value})(pay)
    # Two such functions would have one name, and so the same calls.
    for nameless in (lambda call, order: order, functools.partial(pay)):
        with pytest.raises(Usage, match="has no name of its own: pass `name=`"):
            runlog.tool(nameless)
        assert runlog.tool(name="pay")(nameless).name == "pay"
    with pytest.raises(Usage, match=r"RunlogSaver\.connect\(url"):
        RunlogSaver("http://127.0.0.1:7070")


class Said(BaseModel):
    content: str


@pytest.mark.parametrize(
    "messages",
    [
        "to London",
        b"to London",
        {"content": "to London"},
        {"to London"},
        Said(content="to London"),
        iter(["to London"]),
        None,
    ],
)
def test_messages_that_are_no_list_are_refused_and_not_taken_apart(url, run_id, messages):
    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(Usage, match="a checkpoint has a list of messages, not a value of type "):
            run.checkpoint(messages)
        run.checkpoint(collections.deque(["to London"]))
        assert rl.recover(run_id).messages == ["to London"]
