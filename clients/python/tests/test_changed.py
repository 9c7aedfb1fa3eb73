"""Calls that change between their record and their effect: the record then permits no effect."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from conftest import command
from faults import Interrupted, lost
from runlog import Action, Config, Fenced, Happened, ReconcileRequired, Stale, Unavailable, sync
from runlog._http import SyncHttp
from runlog.sync import Runlog
from test_repeats import NO_RETRY, SAFE, SAFE_NAMES, decisions, set_deadline

READS_BACK = pytest.mark.parametrize("reads_back", [True, False], ids=["same request", "own request"])
KINDS = pytest.mark.parametrize("kind", ["url", "url_of_bases"])


class Changing:
    """Runs `change` once, after the first record of a type was appended and before the client has its answer. With `reads_back`
    that answer is lost and the record is sent again, so that the second answer is the read-back. Otherwise the client reads
    back in a request of its own."""

    def __init__(self, config, kind, change, *, reads_back):
        self.http, self.kind, self.change, self.reads_back = SyncHttp(config), kind.encode(), change, reads_back

    def send(self, request):
        answer = self.http.send(request)
        if "/v1/journal" in request.path and not self.reads_back:
            journal = json.loads(answer.body)
            journal["features"].remove("read_back")
            return replace(answer, body=json.dumps(journal).encode())
        if self.change is None or self.kind not in (request.body or b""):
            return answer
        change, self.change = self.change, None
        change()
        if self.reads_back:
            lost()
        return answer

    def close(self):
        self.http.close()


def never(call):
    pytest.fail("the effect ran")


def decide(url, run_id, *decision):
    with sync.connect(url) as rl:
        [pending] = rl.recover(run_id).pending
    done = command(
        url, "effects", "resolve", run_id, pending["id"], *decision, "--who", "jo", "--why", "asked", "--yes", "--force"
    )
    assert done.returncode == 0, done.stderr


@KINDS
@READS_BACK
def test_a_repeat_does_not_run_if_the_first_result_arrives_before_its_read_back(request, run_id, kind, reads_back):
    url = request.getfixturevalue(kind)
    started, going = threading.Event(), threading.Event()

    def slow(call):
        started.set()
        assert going.wait(60)
        return "paid"

    with sync.connect(url) as first, ThreadPoolExecutor(1) as pool:
        paying = pool.submit(first.open(run_id).call, "pay", {}, slow)
        assert started.wait(60)

        def arrive():
            going.set()
            with pytest.raises(Fenced):
                paying.result(60)

        config = Config(url)
        with Runlog(config, Changing(config, "tool_call_attempt", arrive, reads_back=reads_back)) as rl:
            run = rl.open(run_id)
            decide(url, run_id, "--not-done")
            for happened in (Happened.UNKNOWN, Happened.NOTHING):
                with pytest.raises(ReconcileRequired) as refused:
                    run.call("pay", {}, never)
                assert refused.value.happened is happened and len(refused.value.evidence) == 1
            run.reopen()
            assert len(decisions(url, run_id)) == 1, "only the operator has decided"
            [pending] = rl.recover(run_id).pending
            assert (pending["class"], pending["attempts"]) == ("reconcile_required", 2)


@READS_BACK
@pytest.mark.parametrize("decision", [("--done", '"by hand"'), ("--not-done",)], ids=["done", "not done"])
def test_an_effect_does_not_run_if_its_call_was_decided_before_its_read_back(url, run_id, decision, reads_back):
    def change():
        decide(url, run_id, *decision)

    config = Config(url)
    with Runlog(config, Changing(config, "tool_call_requested", change, reads_back=reads_back)) as rl:
        run = rl.open(run_id)
        with pytest.raises(Stale, match="make the call again") as refused:
            run.call("pay", {}, never)
        assert refused.value.action is Action.RETRY
        # The call that is made again is another attempt, or gets the decision's result.
        ended = len(decision) > 1
        answer = run.call("pay", {}, never if ended else lambda call: "paid")
        assert answer.result == ("by hand" if ended else "paid")
    assert len(decisions(url, run_id)) == 1


@pytest.mark.parametrize("options", SAFE, ids=SAFE_NAMES)
@pytest.mark.parametrize("attempt_lost", [True, False])
def test_a_call_that_was_decided_gets_the_decision_whatever_this_handle_knew(
    url_of_bases, run_id, options, attempt_lost
):
    url = url_of_bases
    config = Config(url)
    with Runlog(config, Changing(config, "tool_call_attempt", lambda: None, reads_back=attempt_lost)) as rl:
        run = rl.open(run_id)

        def fail(call):
            raise ConnectionResetError

        with pytest.raises(Unavailable):
            run.call("pay", {}, fail, **options)
        if attempt_lost:
            set_deadline(rl, NO_RETRY)
            with pytest.raises(Unavailable):
                run.call("pay", {}, never, **options)
            set_deadline(rl, 30.0)
        decide(url, run_id, "--done", '"by hand"')
        assert run.call("pay", {}, never, **options).result == "by hand"
    assert len(decisions(url, run_id)) == 1


@pytest.mark.parametrize("options", SAFE, ids=SAFE_NAMES)
def test_a_late_attempt_of_a_call_whose_run_has_ended_is_no_not_done(url_of_bases, run_id, options):
    url = url_of_bases
    config = Config(url)
    with sync.connect(url) as earlier, pytest.raises(Interrupted):
        earlier.open(run_id).call("pay", {}, lambda call: lost_process(), **options)
    with Runlog(config, Changing(config, "tool_call_attempt", lambda: None, reads_back=True)) as rl:
        run = rl.open(run_id)
        set_deadline(rl, NO_RETRY)
        with pytest.raises(Unavailable):
            run.call("pay", {}, never, **options)
        set_deadline(rl, 30.0)
        run.end("cancelled")
    assert decisions(url, run_id) == []


def lost_process():
    raise Interrupted
