"""Agents in processes of their own: killed, paused, raced, forked."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import runlog
from conftest import command
from runlog import (
    Active,
    ClaimLost,
    Conflict,
    Failed,
    Fenced,
    Forked,
    Happened,
    Invalid,
    ReconcileRequired,
    sync,
)
from runlog._replay import RecordedCall, Replay

AGENT = Path(__file__).with_name("agent.py")


def start(url, run_id, ledger, mode):
    return subprocess.Popen(
        [sys.executable, AGENT, url, run_id, str(ledger), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_agent(url, run_id, ledger, mode):
    process = start(url, run_id, ledger, mode)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    return process.returncode, out.split("\n")[:-1]


def test_an_agent_that_is_killed_in_the_middle_of_a_call_with_a_key_makes_it_again_and_no_other(url, run_id, tmp_path):
    ledger = tmp_path / "ledger"
    assert run_agent(url, run_id, ledger, "die")[0] == -9
    assert run_agent(url, run_id, ledger, "go")[1][-1] == "done"
    # The checkpoint covers `find`, but the agent did not read its recovery: it begins at the start.
    effects = ["find", "book order-7 1", "book order-7 2", "pay"]
    assert ledger.read_text().split("\n")[:-1] == effects


def test_an_agent_that_is_killed_in_the_middle_of_a_call_without_a_key_makes_no_call_before_it_is_decided(
    url, run_id, tmp_path
):
    ledger = tmp_path / "ledger"
    assert run_agent(url, run_id, ledger, "die-paying")[0] == -9
    before = ledger.read_text()
    assert run_agent(url, run_id, ledger, "go")[1][2:] == ["ReconcileRequired nothing operator"]
    assert ledger.read_text() == before
    [pending] = json.loads(command(url, "recover", run_id, "--json").stdout)["pending"]
    arguments = ("--done", '"paid"', "--who", "jo", "--why", "the bank says so", "--yes")
    assert command(url, "effects", "resolve", run_id, pending["id"], *arguments).returncode == 0
    out = run_agent(url, run_id, ledger, "go")[1]
    assert out[-2:] == ["paid", "done"] and ledger.read_text().count("pay\n") == 1


def test_a_process_that_was_taken_over_leaves_its_result_as_evidence(url, run_id, tmp_path):
    ledger = tmp_path / "ledger"
    old = start(url, run_id, ledger, "hold")
    assert old.stdout is not None and "paying\n" in old.stdout
    with sync.connect(url) as rl, rl.run(run_id) as run:
        assert [pending["class"] for pending in run.pending] == ["reconcile_required"]
        out, _ = old.communicate("go\n", timeout=300)
        assert out.split("\n")[-2] in ("Fenced evidence stop", "ClaimLost evidence stop")
        with pytest.raises(ReconcileRequired) as refusal:
            run.call("pay", {"sum": 180}, lambda call: "again")
        [evidence] = refusal.value.evidence
        assert evidence["status"] == "completed" and evidence["reason"] == "fenced"


def test_a_handle_that_is_used_after_a_fork_raises(url, run_id):
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            outcome = b"nothing"
            try:
                run.call("pay", {}, lambda call: os.write(write, b"paid"))
            except Forked:
                try:
                    rl.open(run_id)
                except Forked:
                    outcome = b"forked"
            finally:
                os.write(write, outcome)
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"forked"
        os.close(read)
        os.close(write)
        assert run.call("pay", {}, lambda call: "paid").result == "paid"


def test_a_superseded_handle_raises_and_runs_no_effect(url, run_id):
    with sync.connect(url) as rl:
        old, new = rl.open(run_id), rl.open(run_id)
        with pytest.raises((Fenced, ClaimLost)) as error:
            old.call("pay", {}, lambda call: pytest.fail("ran"))
        assert error.value.action == "stop" and error.value.happened is Happened.NOTHING
        with pytest.raises((Fenced, ClaimLost)):
            old.reopen()
        assert new.call("pay", {}, lambda call: 1).result == 1


def test_a_superseded_handle_with_an_undecided_call_adopts_no_call_of_the_new_process(url, run_id):
    def cut_off(call):
        raise OSError("cut off")

    with sync.connect(url) as rl:
        old = rl.open(run_id)
        with pytest.raises(ReconcileRequired, match="cut off"):
            old.call("pay", {}, cut_off)
        rl.open(run_id)
        with pytest.raises(ClaimLost, match="another process claimed"):
            old.call("refund", {}, lambda call: pytest.fail("ran"))


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("reads_back", [True, False])
def test_a_run_that_is_taken_over_between_intent_and_read_back_has_no_effect_here(url, run_id, key, reads_back):
    from runlog import Config
    from runlog._http import SyncHttp
    from runlog.sync import Runlog

    class TakenOver(SyncHttp):
        armed = False

        def send(self, request):
            if self.armed and ("/outcome" if not reads_back else "/records?") in request.path:
                self.armed = False
                if reads_back:
                    # The read-back of an append whose first answer was lost.
                    assert "consistency=latest" in request.path
                    super().send(request)
                other.open(run_id)
            answer = super().send(request)
            if request.path.startswith("/v1/journal") and not reads_back:
                journal = {**json.loads(answer.body), "features": []}  # an older server's
                answer = dataclasses.replace(answer, body=json.dumps(journal).encode())
            return answer

    config = Config(url)
    transport = TakenOver(config)
    with Runlog(config, transport) as rl, sync.connect(url) as other:
        run = rl.open(run_id)
        transport.armed = True
        with pytest.raises(Fenced) as error:
            run.call("pay", {}, lambda call: pytest.fail("ran"), key=key)
        assert error.value.happened is Happened.UNKNOWN and not transport.armed


@pytest.mark.parametrize("reads_back", [True, False], ids=["one request", "two requests"])
def test_an_intent_of_another_process_under_the_same_id_permits_no_effect(url, run_id, reads_back, monkeypatch):
    """This client's ids are random. Here they are derived from the calls, as the ids of other clients may be."""
    from runlog import Config
    from runlog._http import SyncHttp
    from runlog.sync import Runlog

    class BesideAnOlderServer(SyncHttp):
        """An older server answers appends, and this one the question for their outcome."""

        def send(self, request):
            answer = super().send(request)
            if reads_back or not request.path.startswith(("/v1/journal", f"/v1/runs/{run_id}/records")):
                return answer
            body = json.loads(answer.body)
            body.pop("record_writer", None)
            body.pop("features", None)
            return dataclasses.replace(answer, body=json.dumps(body).encode())

    ids = []

    def opened(rl):
        run = rl.open(run_id)
        count = itertools.count()
        monkeypatch.setattr("runlog._records.new_id", lambda: f"id-{next(count)}")
        monkeypatch.setattr("runlog._gate.new_id", lambda: "request")
        return run

    with Runlog(Config(url), BesideAnOlderServer(Config(url))) as rl:
        run = opened(rl)
        assert run.call("pay", {}, lambda call: ids.append(call.id)).result is None
        monkeypatch.undo()
        run.checkpoint([{"role": "tool", "content": "paid"}])
        run = opened(rl)
        assert len(run.recovery.messages) == 1 and ids == ["id-0"]
        before = command(url, "show", run_id, "--raw", "--json").stdout.splitlines()
        with pytest.raises(Conflict, match=r"record id-0 .* belongs to writer .* in epoch 1: .* not run here"):
            run.call("pay", {}, lambda call: pytest.fail("ran"))
        # This process may not decide that the effect did not happen.
        monkeypatch.undo()
        run.reopen()
        after = command(url, "show", run_id, "--raw", "--json").stdout.splitlines()
        assert [json.loads(line)["payload_type"] for line in after[len(before) :]] == []
        assert rl.recover(run_id).pending == []
        assert run.call("pay", {}, lambda call: "paid again").result == "paid again"


def test_an_active_run_is_not_taken_over_with_unless_active(url, run_id):
    with sync.connect(url) as rl:
        rl.open(run_id)
        with pytest.raises(Active) as error:
            rl.open(run_id, unless_active=60)
        assert error.value.epoch == 1 and error.value.action == "retry"
        assert rl.open(run_id, unless_active=0).epoch == 2


def test_failures_occurrences_and_keys(url, run_id):
    from runlog import Ends, Unavailable, Unknown

    with sync.connect(url) as rl:
        run = rl.open(run_id)

        def sold_out(call):
            raise KeyError("seat")

        def unsure(call):
            raise Unknown("the receiver did not answer")

        with pytest.raises(Failed) as failure:
            run.call("book", {"n": 1}, sold_out, ends=Ends(failed_on=(LookupError,)))
        assert failure.value.kind == "KeyError" and not failure.value.recorded
        assert [run.call("tick", {}, lambda call, n=n: n).result for n in (1, 2)] == [1, 2]
        run.call("pay", {"sum": 1}, lambda call: 1, key="k")
        with pytest.raises(Conflict) as conflict:
            run.call("pay", {"sum": 2}, lambda call: 2, key="k")
        assert conflict.value.action == "fix_the_input"
        with pytest.raises(Unavailable) as unknown:
            run.call("mail", {}, unsure, key="m")
        assert unknown.value.happened is Happened.UNRECORDED
        assert run.call("mail", {}, lambda call: call.attempt, key="m").result == 2
        with pytest.raises(ReconcileRequired) as undecided:
            run.call("fax", {}, unsure)
        assert undecided.value.happened is Happened.UNRECORDED

        again = rl.open(run_id, from_start=True, allow_unresolved=True, on_divergence="allow")
        with pytest.raises(Failed) as failure:
            again.call("book", {"n": 1}, lambda call: pytest.fail("ran"), ends=Ends(failed_on=(LookupError,)))
        assert failure.value.kind == "KeyError" and failure.value.recorded
        assert [again.call("tick", {}, lambda call: 3).result for _ in range(3)] == [1, 2, 3]


def test_what_is_redacted_reaches_neither_the_log_nor_an_answer_from_it(url, run_id):
    from runlog import Redaction

    redaction = Redaction("cards").pointer("pay", "/card").texts(lambda text: text.replace("4111", "[card]"))
    with sync.connect(url, redaction=redaction) as rl:
        run, args = rl.open(run_id), {"card": "4111 1", "sum": 1}
        assert run.call("pay", args, lambda call: {"receipt": "for 4111"}).result == {"receipt": "for 4111"}
        run.checkpoint([{"content": "my card is 4111"}])
        shown = command(url, "show", run_id, "--raw", "--json").stdout
        assert "4111" not in shown and "[card]" in shown and "[redacted]" in shown
        again = rl.open(run_id, from_start=True)
        assert again.call("pay", args, lambda call: pytest.fail("ran")).result == {"receipt": "for [card]"}
        again.checkpoint([{"content": "my card is 4111"}, {"content": "thanks"}])
        assert rl.recover(run_id).messages == [{"content": "my card is [card]"}, {"content": "thanks"}]


def test_a_result_of_more_than_a_mebibyte_is_held_in_the_content_store_and_given_back(url, run_id):
    large = "x" * (2 << 20)
    with sync.connect(url) as rl:
        rl.open(run_id).call("read", {}, lambda call: large)
        assert rl.open(run_id).call("read", {}, lambda call: pytest.fail("ran")).result == large


def test_checkpoints_share_what_they_have_in_common_and_survive_edits(url, run_id):
    import random

    random.seed(7)
    with sync.connect(url) as rl:
        run, messages = rl.open(run_id), []
        for turn in range(25):
            messages = [*messages, {"n": turn, "text": "é\u2028" * 40, "x": turn / 3}]
            if turn % 5 == 4:
                messages = [m for m in messages if random.random() > 0.2]
                random.shuffle(messages)
            run.checkpoint(messages, {"turn": turn}, turn=turn)
            if turn % 6 == 5:
                run = rl.open(run_id)
                assert run.recovery.messages == messages and run.recovery.state == {"turn": turn}
                messages = run.recovery.messages
        assert rl.recover(run_id).messages == messages
    size = sum(len(line) for line in command(url, "show", run_id, "--raw", "--json").stdout.split("\n"))
    assert size < 60_000


def said(n):
    return {"type": "conversation_turn", "message_id": f"m-{n}", "kind": "user", "content": f"message {n}"}


def test_a_batch_is_applied_as_a_whole_or_not_at_all(url, run_id):
    from runlog import Usage

    with sync.connect(url) as rl:
        run = rl.open(run_id)
        ids = run.batch([said(n) for n in range(3)])
        shown = [json.loads(line) for line in command(url, "show", run_id, "--raw", "--json").stdout.splitlines()]
        assert [line["record_id"] for line in shown if line["payload_type"] == "conversation_turn"] == ids
        assert len({line["position"]["offset"] for line in shown if line["record_id"] in ids}) == 1
        # The handle knows the numbers of the batch: the checkpoint covers them and the number of the run's start.
        run.checkpoint([{"n": 1}])
        assert json.loads(command(url, "checkpoint", run_id, "--json").stdout)["covers_journal_seq"] == 4
        assert run.call("pay", {}, lambda call: 1).result == 1
        message = {"type": "agent_message_sent", "message_id": "unknown"}
        with pytest.raises((Conflict, Invalid)):
            run.batch([said(3), {"type": "write_back_committed", "txn": 7, "at": "2026-11-22T02:00:01Z"}, message])
        assert "message 3" not in command(url, "show", run_id, "--json").stdout
        for refused in ([], [{"type": "run_lifecycle", "status": "completed"}], ["text"], [said(1)] * 4097):
            with pytest.raises(Usage):
                run.batch(refused)
        run.turn("user", "thanks")
        assert rl.recover(run_id).messages == [{"n": 1}]


def test_checkpoints_are_pruned_but_the_last_one_and_the_next_one_is_whole(url, run_id):
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        messages = []
        for n in range(3):
            messages.append({"n": n, "text": "x" * 500})
            run.turn("user", f"turn {n}")
            run.checkpoint(messages)
        first = json.loads(command(url, "checkpoint", run_id, "--json").stdout)
        run.prune_checkpoints()
        assert rl.recover(run_id).messages == messages
        api = rl._api
        covers = first["covers_journal_seq"]
        assert rl._driver.drive(api.checkpoint(run_id, covers - 1)) is None
        run.checkpoint(messages[:1])
        [*_, last] = [
            line["payload"]
            for line in map(json.loads, command(url, "show", run_id, "--raw", "--json").stdout.splitlines())
            if line["payload_type"] == "loop_checkpoint"
        ]
        assert "base" not in last or last["base"] is None
        again = rl.open(run_id)
        assert again.recovery.messages == messages[:1]
        again.prune_checkpoints(again._session.covered + 1)
        assert rl.recover(run_id).messages == []


def test_the_trace_context_goes_with_the_records(url, run_id):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen = []

    from runlog import Config
    from runlog._http import SyncHttp
    from runlog.sync import Runlog

    class Recording(SyncHttp):
        def send(self, request):
            seen.append(request.headers.get("traceparent"))
            return super().send(request)

    config = Config(url, traceparent=lambda: trace)
    with Runlog(config, Recording(config)) as rl:
        rl.open(run_id).turn("user", "hello")
    assert trace in seen
    assert Config(url, traceparent=lambda: "malformed").trace() is None


def test_the_trace_context_is_that_of_opentelemetrys_current_span(url):
    from opentelemetry import trace

    from runlog import Config

    assert Config(url).trace() is None
    context = trace.SpanContext(0xAF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert Config(url).trace() == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_errors_keep_what_they_say_when_they_are_pickled():
    import pickle

    error = ReconcileRequired("pending", call="c", evidence=({"status": "completed"},), run_id="r")
    again = pickle.loads(pickle.dumps(error))
    assert (again.call, again.evidence, again.run_id, str(again)) == ("c", error.evidence, "r", "pending")
    copy = error.copy(message="more", happened=Happened.HELD)
    assert (copy.call, str(copy), copy.happened, error.happened) == ("c", "more", Happened.HELD, Happened.NOTHING)


async def test_a_tool_of_the_wrong_kind_is_refused_before_anything_is_recorded(url, run_id):
    @runlog.tool
    async def tool(call, args):
        return 1

    @runlog.tool
    def plain(call, args):
        return 1

    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(runlog.Usage):
            await tool(run, {})
        assert plain(run, {}) == 1
    async with runlog.connect(url) as rl, rl.run(run_id, on_divergence="allow") as run:
        with pytest.raises(runlog.Usage):
            plain(run, {})
        assert run.pending == [] and await tool(run, {}) == 1


@pytest.mark.parametrize(
    "blank", ["", " ", "\t", "\n\r", "\u00a0", "\u200b", "\u2060", "\ufeff \u2800", "\U000e0020"], ids=ascii
)
def test_a_key_without_a_visible_character_is_refused_by_name_before_anything_is_recorded(url, run_id, blank):
    @runlog.tool(key=lambda args: args.get("order", blank))
    def charge(call, args):
        pytest.fail("ran")

    with sync.connect(url) as rl, rl.run(run_id) as run:
        for make in (
            lambda: run.call("charge", {}, lambda call: pytest.fail("ran"), key=blank),
            lambda: run.call("charge", {}, lambda call: pytest.fail("ran"), key=blank, unique=True),
            lambda: charge(run, {}),
            lambda: charge({}),
        ):
            with pytest.raises(runlog.Usage, match=r"key of charge is empty or blank.*or None") as refused:
                make()
            assert refused.value.happened is Happened.NOTHING
        assert rl.recover(run_id).pending == []
        for key in ("k", " k ", f"{blank}k"):
            assert run.call("charge", {}, lambda call: call.idempotency_key, key=key).result == key
    # Outside of a run the receiver would get it.
    plain = runlog.tool(name="charge", key=lambda args: blank, plain_outside=True)(charge.function)
    with pytest.raises(runlog.Usage, match="key of charge is empty"):
        plain({})


def test_a_recorded_call_with_an_empty_key_is_one_without_a_key():
    recorded = {"id": "r", "tool_name": "charge", "fingerprint": "f", "journal_seq": 2, "idempotency_key": ""}
    found = Replay({"checkpoint": None, "completed": [recorded], "pending": []}).take(None, "f")
    assert isinstance(found, RecordedCall) and found.id == "r"
