"""Programs that operate a journal: lists, decisions, tails."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import urllib.request
import uuid
from contextlib import aclosing

import pytest

import runlog
from faults import SyncFaults, lost
from runlog import Config, Conflict, ReconcileRequired, ResultNotRecorded, Unavailable, Usage, sync
from runlog._http import SyncHttp
from runlog._refusals import Refusals
from runlog.testing import Journal


def interrupted(rl: sync.Runlog, run_id: str, arguments: object = None) -> runlog.Effect:
    """A call that may have happened, as an operator reads it."""
    with rl.run(run_id) as run, pytest.raises(ReconcileRequired):
        run.call("pay", arguments or {"sum": 1}, lambda _: 1 / 0)
    [effect] = rl.undecided(run_id)
    return effect


def taken_over(rl: sync.Runlog, run_id: str) -> runlog.Effect:
    """A call whose result is evidence."""
    with rl.run(run_id) as run, pytest.raises(runlog.Fenced):
        run.call("pay", {"sum": 1}, lambda _: (rl.open(run_id), "y" * (2 << 20))[1])
    [effect] = rl.undecided(run_id)
    return effect


class Lacking(SyncHttp):
    """A server whose lists lack partition 3."""

    def send(self, request):
        answer = super().send(request)
        if not request.path.startswith(("/v1/runs?", "/v1/effects?")):
            return answer
        page = json.loads(answer.body)
        return dataclasses.replace(answer, body=json.dumps({**page, "unavailable_partitions": [3]}).encode())


def test_a_list_that_lacks_partitions_does_not_look_complete(url):
    config = Config([url])
    with sync.Runlog(config, Lacking(config)) as rl:
        for items in (rl.runs(), rl.undecided()):
            with pytest.raises(Unavailable, match=r"partitions \[3\] cannot be read now"):
                list(items)


def test_an_undecided_effect_is_listed_with_its_contents_and_decided_once(url, run_id):
    with sync.connect(url, agent="payer") as rl:
        long = {"to": "x" * (2 << 20)}
        effect = interrupted(rl, run_id, long)
        assert (effect.tool, effect.arguments, effect.state, effect.against) == ("pay", long, "running", None)
        assert [found.arguments for found in rl.undecided() if found.run_id == run_id] == [long]
        assert list(rl.runs(run_id, stuck=True)) == [], "its process may still record the result"
        assert list(rl.runs(run_id, in_doubt=True)) == [], "no home was lost"
        with pytest.raises(Conflict, match="may still record") as active:
            rl.decide(effect, "done", result="P1", who="bank", why="it has P1")
        assert active.value.problem["reason"] == "active"
        assert 0 <= active.value.problem["age_millis"] < 30_000
        for _ in range(2):
            rl.decide(effect, "done", result="P1", who="bank", why="it has P1", force=True)
        with pytest.raises(Conflict):
            rl.decide(effect, "not_done", who="bank", why="it has no payment", force=True)
        found = rl.lookup(run_id, "pay", long)
        assert (found["status"], found["result"], list(rl.undecided(run_id))) == ("completed", "P1", [])
        assert rl.lookup(run_id, "pay", {"sum": 2})["status"] == "unknown"


def test_a_decision_against_evidence_names_it_and_one_about_an_older_state_is_refused(url, run_id):
    with sync.connect(url) as rl:
        effect = taken_over(rl, run_id)
        assert effect.evidence[0]["payload"]["result"] == "y" * (2 << 20)
        assert [run["run_id"] for run in rl.runs(run_id, stuck=True)] == [run_id]
        assert effect.against == effect.evidence[0]["record_id"]
        with pytest.raises(Conflict, match=f"record {effect.against} is evidence that it happened"):
            rl.decide(effect, "not_done", who="jo", why="no payment")
        rl.decide(effect, "not_done", against=effect.against, who="jo", why="no payment", force=True)
        with pytest.raises(Conflict):
            rl.decide(effect, "adopt", who="jo", why="seen", force=True)
        for wrong in ({"decision": "done"}, {"decision": "adopt", "result": 1}, {"decision": "maybe"}):
            with pytest.raises(Usage):
                rl.decide(effect, who="jo", why="seen", **wrong)


def test_a_decision_whose_answer_was_lost_is_made_once(url, run_id):
    config = Config(url)
    faults = SyncFaults(config)
    with sync.Runlog(config, faults) as rl:
        effect = taken_over(rl, run_id)
        faults.arm(1, True, lost)
        rl.decide(effect, "adopt", who="jo", why="seen", force=True)
        assert faults.count > 1
    with sync.connect(url) as rl:
        decisions = [line for line in rl.tail(run_id, until_end=True) if line["payload_type"] == "effect_resolution"]
        assert len(decisions) == 1


def test_a_not_done_whose_answer_was_lost_is_made_once_beside_a_later_result_of_another(url, run_id):
    """The server records the piece that the judge reads at version 2: the other's."""
    config = Config(url)
    faults = SyncFaults(config)
    with sync.Runlog(config, faults) as rl:
        waiting = taken_over(rl, run_id)
        payload = {"type": "tool_call_completed", "request_record_id": waiting.id, "result": "of another"}
        record = {"run_id": run_id, "record_id": "other", "writer_id": "nobody", "writer_epoch": 0, "payload": payload}
        sent = urllib.request.Request(
            f"{url}/v1/runs/{run_id}/records", json.dumps(record).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(sent) as answer:
            assert json.loads(answer.read())["reason"] == "fenced"
        [effect] = rl.undecided(run_id)
        assert (len(effect.evidence), effect.against) == (2, waiting.against), "a result of the call's own process wins"
        faults.arm(1, True, lost)
        rl.decide(effect, "not_done", against=effect.against, who="jo", why="no payment", force=True)
        assert faults.count > 1
        with pytest.raises(Conflict):
            rl.decide(effect, "not_done", against=effect.against, who="jim", why="no payment", force=True)


def test_a_lookup_raises_for_a_result_that_is_not_in_the_journal(url, run_id):
    with sync.connect(url) as rl, rl.run(run_id) as run:
        run.call("pay", {}, lambda _: object())
        with pytest.raises(ResultNotRecorded, match="has no JSON"):
            rl.lookup(run_id, "pay", {})


def test_a_tail_continues_after_its_last_record_when_the_server_is_killed(monkeypatch):
    with Journal() as journal, sync.connect(journal.url) as rl:
        with rl.run("run") as run:
            run.turn("user", "line\u2028separator")
            tail = rl.tail("run")
            seen = list(itertools.islice(tail, 3))
            journal.kill()
            journal.start()
            run.turn("user", "second")
            seen.append(next(tail))
            tail.close()
        assert [line["payload"].get("content") for line in seen[2:]] == ["line\u2028separator", "second"]
        again = list(rl.tail("run", start=seen[1]["cursor"], until_end=True))
        assert [line["cursor"] for line in again] == [line["cursor"] for line in seen[2:]]


async def test_an_async_program_lists_decides_and_follows(url):
    run_id = f"run-{uuid.uuid4()}"
    async with runlog.connect(url) as rl:
        with pytest.raises(ReconcileRequired):
            await (await rl.open(run_id)).call("pay", {"sum": 1}, lambda _: 1 / 0)
        async for effect in rl.undecided(run_id):
            await rl.decide(effect, "give_up", who="jo", why="the outcome is unknown", force=True)
        assert (await rl.lookup(run_id, "pay", {"sum": 1}))["status"] == "failed"
        assert [run["run_id"] async for run in rl.runs(run_id)] == [run_id]
        async with aclosing(rl.tail(start="beginning", until_end=True)) as lines:
            assert run_id in [line["run_id"] async for line in lines]


@pytest.mark.parametrize(
    ("run_id", "call"), [('it\'s $HOME & "co"; exit 3', "a b\\"), ("--yes", "-rf `exit 3`"), ("run-42", "")]
)
def test_a_printed_decision_names_the_call_whatever_its_ids_contain(run_id, call):
    printed = Refusals(run_id, "pay").decision(call).removeprefix("`").rpartition("`, or with `--not-done`")[0]
    shell = subprocess.run(["sh", "-c", f"printf '%s\\0' {printed}"], check=True, capture_output=True, text=True)
    words = shell.stdout.split("\0")[:-1]
    flags = ["--who", "NAME", "--why", "TEXT", "--done", "RESULT_AS_JSON"]
    if run_id.startswith("-"):
        assert words == ["runlog", "effects", "resolve", *flags, "--", run_id, call]
    else:
        assert words == ["runlog", "effects", "resolve", run_id, call, *flags]
