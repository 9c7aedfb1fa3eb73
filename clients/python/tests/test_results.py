"""A call whose effect ran ends with every result."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
import subprocess
import sys
import traceback
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import runlog
import runlog.errors
import values
from conftest import command
from faults import SyncFaults
from runlog import Config, Redaction, ResultNotRecorded, _ends, sync
from runlog._marker import MARKER
from runlog._wire import NoResponse, Response
from runlog.openai_agents import RunlogSession
from values import NAMED, NOON


class Thing:
    pass


def never(call):
    pytest.fail("ran")


class Proxy(SyncFaults):
    """Does not pass on a request with more than `most` bytes, and answers results with `instead`."""

    most = 1 << 30
    instead: Response | None = None

    def send(self, request: Any) -> Response:
        if len(request.body or b"") > self.most:
            return Response(413, {}, b"<html>413 Request Entity Too Large</html>")
        if self.instead is not None and b"tool_call_completed" in (request.body or b""):
            return self.instead
        return super().send(request)


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def pending(rl: sync.Runlog, run_id: str) -> list[Any]:
    recovery = rl.recover(run_id)
    assert recovery is not None
    return recovery.pending


class OldModel(BaseModel):
    id: str


class NewModel(OldModel):
    currency: str


@dataclasses.dataclass
class OldClass:
    id: str


@dataclasses.dataclass
class NewClass:
    id: str
    currency: str


@pytest.mark.parametrize("old, new", [(OldModel, NewModel), (OldClass, NewClass)])
@pytest.mark.parametrize("key", [None, lambda order: order], ids=["without a key", "with a key"])
def test_a_recorded_result_that_no_longer_fits_its_type_is_refused_by_name_each_time(url, run_id, old, new, key):
    ran = []

    def charging(kind):
        def charge(call, order: str):
            ran.append(order)
            return old(id="secret")

        charge.__annotations__["return"] = kind
        return runlog.tool(key=key)(charge)

    with sync.connect(url) as rl:
        with rl.run(run_id):
            charging(old)("7")
        with rl.run(run_id) as run:
            for _ in range(2):
                reason = "ValidationError: currency: missing" if new is NewModel else "TypeError$"
                with pytest.raises(runlog.Invalid, match=f"does not fit its type.*{reason}") as refused:
                    charging(new)("7")
                # Errors are written to logs: no part of the result is in one, nor in its causes.
                assert "secret" not in "".join(traceback.format_exception(refused.value))
            [recorded] = run.recovery.completed
            assert refused.value.record_id == recorded["id"]
            if key is None:
                # The program still lacks the answer, so a changed call may repeat the effect.
                with pytest.raises(runlog.Diverged):
                    charging(new)("8")
            assert charging(old)("7") == old(id="secret")
    assert ran == ["7"]


async def test_the_same_for_an_async_tool(url, run_id):
    async def charge(call, order: str):
        return {"id": "r"}

    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            await runlog.tool(charge)("7")
        async with rl.run(run_id):
            charge.__annotations__["return"] = NewModel
            for _ in range(2):
                with pytest.raises(runlog.Invalid, match="does not fit its type"):
                    await runlog.tool(charge)("7")


def test_the_size_of_a_result_is_in_bytes(url, run_id, monkeypatch):
    monkeypatch.setattr(_ends, "RESULT_BYTES_MAX", 100)
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.call("tell", {}, lambda call: "é" * 60)
        with rl.run(run_id) as run, pytest.raises(ResultNotRecorded) as left_out:
            run.call("tell", {}, never)
    assert (left_out.value.marker["reason"], left_out.value.marker["bytes"]) == ("too_large", 122)


def test_a_result_of_any_type_is_recorded_and_comes_back(url, run_id):
    results = [value for value in NAMED.values() if not isinstance(value, values.Dumped)]
    results += ["half an emoji \ud83d", {"\ude00": "\ud83d\ude00"}, [float("nan")], "x" * (3 << 20)]
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            for number, value in enumerate(results):
                assert run.call("tool", {"number": number}, lambda _, value=value: value).result is value
        with rl.run(run_id) as run:
            back = [run.call("tool", {"number": n}, lambda _: pytest.fail("ran")).result for n in range(len(results))]
    assert back[-4:] == ["half an emoji \ud83d", {"\ude00": "\U0001f600"}, ["NaN"], "x" * (3 << 20)]
    assert command(url, "show", run_id).returncode == command(url, "export", run_id).returncode == 0


@runlog.tool
def book(call: runlog.Call, args: dict[str, int]) -> values.Trip:
    if args["seat"] != 1:
        pytest.fail("ran")
    args["seat"] = 2
    return NAMED["trip"]


def test_a_recorded_result_is_of_the_type_that_the_function_names(url, run_id):
    with sync.connect(url) as rl:
        with rl.run(run_id):
            assert book({"seat": 1}) is NAMED["trip"]
        with rl.run(run_id):
            assert book({"seat": 1}) == NAMED["trip"]


LEFT_OUT: dict[str, tuple[Any, dict[str, Any]]] = {
    "no json": (
        {"to": [1, {"when": Thing()}]},
        {"reason": "no_json", "type": "dict", "bytes": None, "message": "a value of type test_results.Thing has no JSON; pass a "
         "dataclass, a model or JSON, at $.to[1].when"},
    ),
    "a large integer": (
        [2**1024],
        {"reason": "no_json", "message": "an integer beyond the range of a double has no JSON that every reader understands, "
         "at $[0]"},
    ),
    "same text of two keys": ({1: "a", "1": "b"}, {"reason": "no_json", "message": "two keys are the same text '1'"}),
    "deeper than a record": (deep(126), {"reason": "invalid", "bytes": 254}),
    "more bytes than a record": ("x" * (65 << 20), {"reason": "too_large", "type": "str", "bytes": (65 << 20) + 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_result_that_cannot_be_recorded_ends_its_call_and_the_run_continues(url, run_id, name):
    value, members = LEFT_OUT[name]
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            assert run.call("pay", {"sum": 1}, lambda _: value, key="k").result is value
            assert run.call("mail", {}, lambda _: "sent").result == "sent"
            assert pending(rl, run_id) == []
        for _ in range(2):
            with rl.run(run_id) as run:
                for _ in range(2):
                    with pytest.raises(ResultNotRecorded, match="is completed and was not run again") as left_out:
                        run.call("pay", {"sum": 1}, lambda _: pytest.fail("ran"), key="k")
                    assert left_out.value.marker.items() >= members.items()
                    assert left_out.value.marker["call"] == left_out.value.record_id
                    assert left_out.value.happened is runlog.Happened.NOTHING
                assert run.call("mail", {}, lambda _: pytest.fail("ran")).result == "sent"


def test_a_call_without_a_key_is_not_run_again_either(url, run_id):
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.call("pay", {}, lambda _: Thing())
        with rl.run(run_id) as run:
            for _ in range(2):
                with pytest.raises(ResultNotRecorded):
                    run.call("pay", {}, lambda _: pytest.fail("ran"))


def test_a_marker_and_a_result_are_never_confused(url, run_id):
    def marker(call: str) -> dict[str, Any]:
        return {MARKER: {"call": call, "reason": "no_json", "message": "", "type": None, "bytes": None}}

    honest = [marker("of-another-call"), {**marker("x"), "more": 1}, {MARKER: 5}, {"result": marker("x")}]
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            for number, value in enumerate(honest):
                run.call("tool", {"number": number}, lambda _, value=value: value)
            run.call("tool", {"number": "own"}, lambda call: marker(call.id))
        with rl.run(run_id) as run:
            for number, value in enumerate(honest):
                assert run.call("tool", {"number": number}, lambda _: pytest.fail("ran")).result == value
            with pytest.raises(ResultNotRecorded, match="the result is a marker of this call"):
                run.call("tool", {"number": "own"}, lambda _: pytest.fail("ran"))


@pytest.mark.parametrize("sent", [False, True], ids=["not sent", "sent"])
def test_a_result_that_a_proxy_refuses_ends_its_call_also_if_it_was_held(url, run_id, sent):
    config = Config(url, deadline=2)
    proxy = Proxy(config)

    def no_answer() -> None:
        raise NoResponse("gone", sent=sent)

    def cut_off(_: Any) -> str:
        proxy.arm(1, False, no_answer, times=10_000)
        proxy.most = 1 << 30
        return "y" * 200_000

    with sync.Runlog(config, proxy) as rl:
        with rl.run(run_id) as run:
            proxy.most = 100_000
            run.call("first", {}, lambda _: "x" * 200_000)
            with pytest.raises(runlog.Unavailable) as held:
                run.call("second", {}, cut_off)
            assert held.value.happened is runlog.Happened.HELD
            proxy.at, proxy.most = None, 100_000
            run.reopen()
            assert run.held == (0, 0) and pending(rl, run_id) == []
        with rl.run(run_id) as run:
            for tool in ("first", "second"):
                with pytest.raises(ResultNotRecorded) as left_out:
                    run.call(tool, {}, lambda _: pytest.fail("ran"))
                assert (left_out.value.marker["reason"], left_out.value.marker["bytes"]) == ("too_large", 200_002)


def test_a_result_is_held_while_the_server_refuses_the_token(url, run_id):
    config = Config(url)
    proxy = Proxy(config)
    with sync.Runlog(config, proxy) as rl:
        run = rl.open(run_id)
        proxy.instead = Response(401, {}, b'{"kind": "unauthenticated", "status": 401}')
        with pytest.raises(runlog.Unauthenticated) as refused:
            run.call("pay", {}, lambda _: "paid")
        assert (refused.value.happened, refused.value.action) == (runlog.Happened.HELD, runlog.Action.CREDENTIALS)
        proxy.instead = None
        assert run.call("pay", {}, lambda _: pytest.fail("ran")).result == "paid"


def test_a_marker_that_is_adopted_as_evidence_is_a_marker(url, run_id):
    with sync.connect(url) as rl:
        run = rl.open(run_id)

        def taken_over(_: Any) -> Thing:
            rl.open(run_id)
            return Thing()

        with pytest.raises(runlog.Fenced) as fenced:
            run.call("pay", {}, taken_over)
        assert fenced.value.happened is runlog.Happened.EVIDENCE
        [call] = pending(rl, run_id)
        how = ("--adopt", "--who", "jo", "--why", "seen", "--yes", "--force")
        decided = command(url, "effects", "resolve", run_id, call["id"], *how)
        assert decided.returncode == 0, decided.stderr
        with rl.run(run_id) as again, pytest.raises(ResultNotRecorded, match=r"test_results\.Thing"):
            again.call("pay", {}, lambda _: pytest.fail("ran"))


def test_a_failure_ends_its_call_whatever_its_text_is(url, run_id):
    def fail(_: Any) -> None:
        raise runlog.Failed("bad\udcff", "half \ud83d" + "x" * (65 << 20))

    with sync.connect(url) as rl:
        with rl.run(run_id) as run, pytest.raises(runlog.Failed):
            run.call("pay", {}, fail)
        assert pending(rl, run_id) == []
        with (
            rl.run(run_id) as run,
            pytest.raises(runlog.Failed, match=r"bad\\udcff: half \\ud83dx{900}.*not recorded") as failed,
        ):
            run.call("pay", {}, lambda _: pytest.fail("ran"))
        assert failed.value.recorded and len(failed.value.message) < 3000


class Card:
    def model_dump(self, mode: str) -> Any:
        raise ValueError("the secret is no number")


def test_a_redaction_lets_nothing_through_that_has_no_json_or_that_it_fails_on(url, run_id):
    def broken(text: str) -> str:
        raise LookupError(text)

    policies = [Redaction("policy").texts(broken), Redaction("policy").pointer("pay", "/card")]
    for policy, result, message in zip(
        policies,
        ["the secret", {"card": Card()}],
        [r"the redaction raised LookupError$", r"a part of the result has no JSON, at \$\.card$"],
        strict=True,
    ):
        with sync.connect(url, redaction=policy) as rl:
            with rl.run(run_id, on_divergence="allow") as run:
                run.call("pay", policies.index(policy), lambda _, result=result: result)
            with rl.run(run_id) as run, pytest.raises(ResultNotRecorded, match=message):
                run.call("pay", policies.index(policy), lambda _: pytest.fail("ran"))
    assert "secret" not in command(url, "show", run_id, "--raw", "--json").stdout


def test_arguments_that_cannot_be_recorded_are_refused_before_anything_is_recorded(url, run_id):
    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(
            runlog.Invalid, match=r"arguments of pay cannot be recorded, and nothing ran: .* at \$\.to\[2\]\.when$"
        ):
            run.call("pay", {"to": [1, 2, {"when": Thing()}]}, lambda _: pytest.fail("ran"))
        assert run.call("pay", {"at": NOON}, lambda _: 1).result == 1
        assert pending(rl, run_id) == []


def test_half_an_emoji_in_messages_and_state_comes_back(url, run_id):
    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.turn("user", "\ud83d")
            run.checkpoint([{"content": "\ud83d"}], {"day": dt.date(2026, 1, 2), "said": "\ud83d"})
            run.checkpoint([{"content": "\ud83d"}, "x" * 1000], {"said": "\ud83d"})
        with rl.run(run_id) as run:
            assert run.recovery.messages == [{"content": "\ud83d"}, "x" * 1000] and run.recovery.state == {
                "said": "\ud83d"
            }


async def test_half_an_emoji_in_a_session_comes_back(url, run_id):
    async with runlog.connect(url) as rl:
        item: Any = {"role": "user", "content": "\ud83d"}
        await RunlogSession(await rl.open(run_id)).add_items([item])
        assert await RunlogSession(await rl.open(run_id)).get_items() == [item]


MAILS = """
import sys
from runlog import sync
from values import Group

def mail(call):
    with open(sys.argv[3], "a") as ledger:
        ledger.write("mail\\n")

with sync.connect(sys.argv[1]) as rl, rl.run(sys.argv[2]) as run:
    run.call("mail", Group(to={"ada", "zoë", "b", "c"}, any={"x", "y", "z"}), mail)
"""


def test_a_set_in_a_model_is_mailed_once_by_three_processes(url, run_id, tmp_path):
    ledger = tmp_path / "ledger"
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(
            [sys.executable, "-c", MAILS, url, run_id, ledger],
            env=environment,
            cwd=Path(__file__).parent,
            check=True,
            timeout=100,
        )
    assert ledger.read_text() == "mail\n"


def test_the_text_of_an_error_has_no_hidden_characters():
    error = runlog.Invalid("run pay\u200bment\x1b[2J\x9b\U000e0041 ä 決 is\tfenced\n")
    assert str(error) == "run pay\\u200bment\\x1b[2J\\x9b\\U000e0041 ä 決 is\tfenced\n"
    assert error.message.startswith("run pay\u200b"), "a program reads it as it is"


def test_a_character_is_blank_if_the_server_calls_it_blank():
    rule = (Path(__file__).parents[3] / "schemas/src/hidden.rs").read_text().partition("pub fn is_blank")[0]
    found = re.findall(r"'\\u\{([0-9a-f]+)\}'(?:\.\.='\\u\{([0-9a-f]+)\}')?", rule)
    listed = {of for first, last in found for of in range(int(first, 16), int(last or first, 16) + 1)}
    assert len(found) > 10
    for of in range(sys.maxunicode + 1):
        character = chr(of)
        blank = of in listed or character.isspace() or unicodedata.category(character) == "Cc"
        assert runlog.errors.is_blank(character) == blank, hex(of)
