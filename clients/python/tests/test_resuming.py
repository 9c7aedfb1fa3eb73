"""A process that continues a run: which records it reads, and which calls it may make before the recorded calls."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

import runlog
from conftest import Server, command
from faults import SyncFaults
from runlog import Config, Diverged, ReconcileRequired, sync
from runlog import _api as api
from runlog._wire import Response


def never(call):
    pytest.fail("ran")


def charge_seven(url, run_id):
    with sync.connect(url) as rl, rl.run(run_id) as run:
        run.call("find", {"to": "LHR"}, lambda call: "HAT136")
        run.call("charge", {"order": 7}, lambda call: "charged")


def test_a_call_whose_arguments_a_deploy_changed_is_not_made_beside_the_recorded_one(url, run_id):
    charge_seven(url, run_id)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        assert run.recovery.completed
        run.call("find", {"to": "LHR"}, never)
        with pytest.raises(Diverged, match=r'charge\(\{"order":7\}\), call [^;]*\. Nothing ran') as diverged:
            run.call("charge", {"order": 7, "currency": "EUR"}, never)
        assert len(diverged.value.calls) == 1 and diverged.value.happened == "nothing"
        # As the error says: after the recorded calls a new call runs.
        assert run.call("charge", {"order": 7}, never).recorded
        assert run.call("charge", {"order": 8}, lambda call: "charged").result == "charged"
    with sync.connect(url) as rl, rl.run(run_id, on_divergence="allow") as run:
        assert run.call("charge", {"order": 9}, lambda call: "charged").result == "charged"


def test_calls_in_another_order_and_calls_that_repeat_nothing_diverge_from_nothing(url, run_id):
    charge_seven(url, run_id)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        run.call("weather", {}, lambda call: "fair", repeatable=True)
        run.call("mail", {}, lambda call: "sent", key="mail-7")
        run.call("seat", {"id": "model-1"}, lambda call: "1A", unique=True)
        run.call("charge", {"order": 7}, never)
        run.call("find", {"to": "LHR"}, never)
        run.call("charge", {"order": 8}, lambda call: "charged")
        run.checkpoint([{"role": "user", "content": "thanks"}])
    with sync.connect(url) as rl, rl.run(run_id) as run:
        assert run.recovery.messages  # calls that the checkpoint covers need not be made again
        run.call("charge", {"order": 9}, lambda call: "charged")


def test_recorded_calls_of_a_repeatable_tool_and_failed_ones_may_be_left_out(url_of_bases, run_id, monkeypatch):
    monkeypatch.setattr(api, "REQUESTS_PAGE", 2)

    def sold_out(call):
        raise runlog.Failed("sold_out")

    with sync.connect(url_of_bases) as rl, rl.run(run_id) as run:
        for day in range(5):
            run.call("look", {"day": day}, lambda call: "HAT136", repeatable=True)
        with pytest.raises(runlog.Failed):
            run.call("book", {"seat": "1A"}, sold_out)
    with sync.connect(url_of_bases) as rl, rl.run(run_id) as run:
        assert run.call("charge", {"order": 7}, lambda call: "charged").result == "charged"


def test_only_the_record_or_this_run_says_that_a_tool_is_repeatable(url, run_id):
    @runlog.tool(name="look", repeatable=True)
    def of_another_agent(call: runlog.Call, to: str) -> str:
        return to

    with sync.connect(url) as rl:
        with rl.run(run_id) as run:
            run.call("look", {"to": "LHR"}, lambda call: "HAT136")
        with rl.run(f"{run_id}-other"):
            of_another_agent("LHR")
        with rl.run(run_id) as run:
            with pytest.raises(Diverged, match="look"):
                run.call("charge", {"order": 7}, never)
            # On a server without the feature `bases` no record says it, so a call in this run must.
            of_another_agent("CDG")
            assert run.call("charge", {"order": 7}, lambda call: "charged").result == "charged"


def test_pending_is_current_and_names_tools(url, run_id):
    def lost(call):
        raise ConnectionResetError("lost")

    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(runlog.Unavailable):
            run.call("mail", {"to": "Ada"}, lost, key="mail-1")
        with pytest.raises(ReconcileRequired, match=r"effects resolve .* --who NAME --why TEXT --done") as first:
            run.call("charge", {"order": 7}, lost)
        with pytest.raises(
            ReconcileRequired, match=f"call {first.value.call} of charge .*no new effect runs"
        ) as second:
            run.call("book", {"seat": "1A"}, never)
        assert [error.value.happened for error in (first, second)] == ["unrecorded", "nothing"]
        found = [(of["tool_name"], of["class"], of["attempts"]) for of in run.pending]
        assert found == [("mail", "retry_safe", 1), ("charge", "reconcile_required", 1)]
    with sync.connect(url) as rl, rl.run(run_id) as run:
        [_, charge] = run.pending
        assert charge["id"] == first.value.call and charge["revision"]
        with pytest.raises(ReconcileRequired, match="of charge"):
            run.call("book", {"seat": "1A"}, never)
        [effect] = rl.undecided(run_id)
        rl.decide(effect, "done", result="charged", who="jo", why="the bank says so")
        assert run.call("charge", {"order": 7}, never).result == "charged"
        assert [of["tool_name"] for of in run.pending] == ["mail"]
        assert run.call("mail", {"to": "Ada"}, lambda call: call.attempt, key="mail-1").result == 2
        assert run.pending == [] and [of["tool_name"] for of in run.recovery.pending] == ["mail", "charge"]


async def test_tasks_that_call_in_another_order_are_warned_and_go_on(url, run_id, caplog):
    async def effect(call):
        return "HAT136"

    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            await run.call("look up", {"to": "CDG"}, effect)
        async with rl.run(run_id) as run:
            # Each in a task of its own, one after the other: gathered, the second could ask before the first is new.
            found = [await asyncio.create_task(run.call("look up", {"to": to}, effect)) for to in ("LHR", "CDG")]
            assert [answer.recorded for answer in found] == [False, True]
    assert "call" in caplog.text and "not asked for yet" in caplog.text


def test_a_repeated_call_that_the_checkpoint_covers_is_warned_of_once(url, run_id, caplog):
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        run.call("find", {"to": "LHR"}, lambda call: "HAT136")
        run.call("charge", {"order": 7}, lambda call: "charged")
        run.checkpoint([{"role": "user", "content": "thanks"}])
        begun = rl.open(run_id, from_start=True)
        assert begun.call("charge", {"order": 7}, never).recorded and not caplog.text
        unread = rl.open(run_id)
        assert (
            unread.call("charge", {"order": 7}, never).recorded and unread.call("find", {"to": "LHR"}, never).recorded
        )
        assert caplog.text.count("did not read `run.recovery`") == 1 and "a call of charge" in caplog.text


def test_opening_reads_no_call_that_the_checkpoint_covers_and_a_key_finds_its_call_all_the_same(
    url, run_id, monkeypatch
):
    monkeypatch.setattr(api, "RECOVERY_PAGE", 4)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        run.call("pay", {"sum": 1}, lambda call: "paid", key="pay-1")
        for n in range(12):
            run.call("tick", {"n": n}, lambda call: call.id)
        run.checkpoint([{"role": "user", "content": "tick"}])
    config = runlog.Config(url)
    transport = SyncFaults(config)
    with sync.Runlog(config, transport) as rl, rl.run(run_id) as run:
        opened = transport.count
        # The server's features, the head, the claim and the recovery.
        assert run.recovery.messages and opened <= 4
        assert run.call("pay", {"sum": 1}, never, key="pay-1").recorded
        with pytest.raises(runlog.Conflict, match="other arguments"):
            run.call("pay", {"sum": 2}, never, key="pay-1")
        assert not run.call("tick", {"n": 0}, lambda call: call.id).recorded
    with sync.connect(url) as rl, rl.run(run_id) as run:
        # A process that begins at the start finds its calls in their order.
        assert all(run.call("tick", {"n": n}, never).recorded for n in range(12))
        assert run.call("tick", {"n": 0}, never).recorded
        run.checkpoint([])


def test_equal_calls_that_a_skip_displaced_answer_in_the_order_of_the_log(tmp_path, run_id):
    server = Server(tmp_path, "--partitions", "1")
    with sync.connect(server.url) as rl:
        with rl.run(run_id) as run:
            run.turn("user", "poison")
            for booking in ("first", "second"):
                run.call("pay", {"invoice": 7}, lambda call, booking=booking: booking)
        shown = [
            json.loads(line) for line in command(server.url, "show", run_id, "--raw", "--json").stdout.splitlines()
        ]
        [victim] = [line["position"] for line in shown if line["payload_type"] == "conversation_turn"]
        [_, second] = [line["record_id"] for line in shown if line["payload_type"] == "tool_call_requested"]
        at, why = f"0:{victim['offset']}", ("--who", "jo", "--why", "poison", "--force", "--yes")
        assert command(server.url, "dead-letter", "skip", at, *why).returncode == 0
        for effect in rl.undecided(run_id):
            if effect.id == second:
                rl.decide(effect, "adopt", who="jo", why="the bank has it", force=True)
            else:
                rl.decide(effect, "not_done", against=effect.against, who="jo", why="the bank has one", force=True)
        with rl.run(run_id) as run:
            assert run.call("pay", {"invoice": 7}, lambda call: "again").result == "again"
            assert run.call("pay", {"invoice": 7}, never).result == "second"
    server.stop()


def last_offset(url, run_id):
    shown = command(url, "show", run_id, "--raw", "--json").stdout.splitlines()
    return json.loads(shown[-1])["position"]["offset"]


def skip(url, offset):
    """Voids a record of the server's only partition."""
    done = command(url, "dead-letter", "skip", f"0:{offset}", "--who", "jo", "--why", "poison", "--force", "--yes")
    assert done.returncode == 0, done.stderr


async def test_equal_calls_that_were_cancelled_answer_in_the_order_of_the_log(url, run_id):
    started = asyncio.Queue()

    async def hold(call):
        started.put_nowait(call.id)
        await asyncio.Event().wait()

    async with runlog.connect(url) as rl:
        run = await rl.open(run_id)
        calls = []
        for _ in range(3):
            calls.append(asyncio.create_task(run.call("pay", {"invoice": 7}, hold)))
            await started.get()
        for call in (calls[1], calls[2], calls[0]):
            call.cancel()
            await asyncio.wait([call])
        effects = [effect async for effect in rl.undecided(run_id)]
        for effect, result in zip(effects, ("first", "second", "third"), strict=True):
            await rl.decide(effect, "done", result=result, who="jo", why="the bank has it", force=True)
        answers = [(await run.call("pay", {"invoice": 7}, never)).result for _ in range(3)]
        assert answers == ["first", "second", "third"]


@pytest.mark.parametrize("key", [None, "invoice-7"])
def test_a_covered_call_whose_end_is_voided_later_is_pending_for_a_process_that_begins_at_the_start(
    tmp_path, run_id, key
):
    server = Server(tmp_path, "--partitions", "1")
    with sync.connect(server.url) as rl:
        run = rl.open(run_id)
        run.turn("user", "pay")
        assert run.call("pay", {"invoice": 7}, lambda call: "first", key=key).result == "first"
        result = last_offset(server.url, run_id)
        run.checkpoint([])
        run = rl.open(run_id)
        skip(server.url, result)
        if key is None:
            with pytest.raises(ReconcileRequired):
                run.call("pay", {"invoice": 7}, never)
        else:
            assert run.call("pay", {"invoice": 7}, lambda call: call.attempt, key=key).result == 2
    server.stop()


def test_a_call_with_a_key_whose_end_is_voided_runs_again_with_its_key(tmp_path, run_id):
    server = Server(tmp_path, "--partitions", "1")
    with sync.connect(server.url) as rl:
        run = rl.open(run_id)
        assert run.call("pay", {"invoice": 7}, lambda call: "first", key="invoice-7").result == "first"
        skip(server.url, last_offset(server.url, run_id))
        with pytest.raises(ReconcileRequired, match="answer was not found"):
            run.call("pay", {"invoice": 7}, never, key="invoice-7")
        assert run.call("pay", {"invoice": 7}, lambda call: call.attempt, key="invoice-7").result == 2
    server.stop()


@pytest.mark.parametrize("resumes", [False, True])
def test_a_call_that_was_answered_and_is_pending_again_answers_no_other_call(tmp_path, run_id, resumes):
    server = Server(tmp_path, "--partitions", "1")

    def breaks(call):
        raise TimeoutError

    with sync.connect(server.url) as rl:
        run = rl.open(run_id)
        assert run.call("pay", {"invoice": 7}, lambda call: "first").result == "first"
        skip(server.url, last_offset(server.url, run_id))
        if resumes:
            with pytest.raises(runlog.Conflict):
                run.checkpoint([])
            run.checkpoint([])
            run = rl.open(run_id)
            assert run.recovery.messages == []
        else:
            # After a call that may have happened, the next one reads what is pending in the journal.
            with pytest.raises(ReconcileRequired, match="find"):
                run.call("find", {"to": "LHR"}, breaks)
        with pytest.raises(ReconcileRequired):
            run.call("pay", {"invoice": 7}, never)
        for effect in rl.undecided(run_id):
            rl.decide(effect, "done", result="first", who="jo", why="the bank has it", force=True)
        assert run.call("pay", {"invoice": 7}, lambda call: "second").result == "second"
    server.stop()


def test_a_unique_call_that_is_made_again_takes_no_other_call(url, run_id):
    ran = []

    def pay(call):
        ran.append(len(ran))
        return ran[-1]

    with sync.connect(url) as rl:
        for _ in range(2):
            with rl.run(run_id) as run:
                made = [run.call("pay", {}, pay, unique=unique).result for unique in (True, True, False)]
                assert (made, ran) == ([0, 0, 1], [0, 1])


async def booked(call):
    return "HAT136"


async def charge_seven_async(rl, run_id):
    async with rl.run(run_id) as run:
        await run.call("find", {"to": "LHR"}, booked)
        await run.call("find", {"to": "CDG"}, booked)
        await run.call("charge", {"order": 7}, booked)


async def changed(run):
    """Makes a call whose arguments a deploy changed."""
    await run.call("charge", {"order": 7, "currency": "EUR"}, never)


async def test_calls_of_tasks_that_have_ended_do_not_let_a_changed_call_run(url, run_id):
    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        async with rl.run(run_id) as run:
            await asyncio.gather(*(run.call("find", {"to": to}, booked) for to in ("CDG", "LHR")))
            with pytest.raises(Diverged):
                await changed(run)


async def test_a_changed_call_in_wait_for_does_not_run(url, run_id):
    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        async with rl.run(run_id) as run:
            for to in ("LHR", "CDG"):
                assert (await asyncio.wait_for(run.call("find", {"to": to}, booked), 60)).recorded
            with pytest.raises(Diverged):
                await asyncio.wait_for(changed(run), 60)


async def test_a_changed_call_in_a_run_that_a_helper_opened_does_not_run(url, run_id):
    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        run = await asyncio.create_task(rl.open(run_id))
        with pytest.raises(Diverged):
            await changed(run)


async def opened_in_wait_for(rl, run_id):
    return await asyncio.wait_for(asyncio.create_task(rl.open(run_id)), 60)


async def opened_in_a_task(rl, run_id):
    opening = asyncio.create_task(rl.open(run_id))
    await asyncio.wait({opening})
    return opening.result()


@pytest.mark.parametrize("opened", [opened_in_wait_for, opened_in_a_task])
async def test_a_new_call_beside_workers_that_did_not_call_yet_is_warned_of(url, run_id, caplog, opened):
    go = asyncio.Event()

    async def first(run):
        assert (await run.call("find", {"to": "LHR"}, booked)).recorded
        assert not (await run.call("mail", {"to": "Ada"}, booked)).recorded
        go.set()

    async def second(run):
        await go.wait()
        assert (await run.call("find", {"to": "CDG"}, booked)).recorded

    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        run = await opened(rl, run_id)
        async with asyncio.TaskGroup() as workers:
            workers.create_task(first(run))
            workers.create_task(second(run))
    assert "not asked for yet" in caplog.text


@pytest.mark.parametrize("opened", [opened_in_wait_for, opened_in_a_task])
async def test_a_changed_call_after_such_an_opening_does_not_run(url, run_id, opened):
    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        run = await opened(rl, run_id)
        with pytest.raises(Diverged):
            await asyncio.wait_for(changed(run), 60)


class AnswerRefused(SyncFaults):
    """Refuses requests for a recorded call while `refuses` is set."""

    refuses = False

    def send(self, request):
        if self.refuses and request.method == "GET" and "/calls/" in request.path:
            return Response(403, {}, b"<html>403 Forbidden</html>")
        return super().send(request)


def test_a_call_whose_recorded_answer_could_not_be_read_is_expected_again(url, run_id):
    charge_seven(url, run_id)
    config = Config(url)
    faults = AnswerRefused(config)
    with sync.Runlog(config, faults) as rl, rl.run(run_id) as run:
        run.call("find", {"to": "LHR"}, never)
        faults.refuses = True
        with pytest.raises(runlog.Error, match="403"):
            run.call("charge", {"order": 7}, never)
        faults.refuses = False
        with pytest.raises(Diverged):
            run.call("charge", {"order": 7, "currency": "EUR"}, never)
        assert run.call("charge", {"order": 7}, never).recorded


async def test_a_new_call_beside_a_task_that_makes_calls_is_warned_of(url, run_id, caplog):
    called, go = asyncio.Event(), asyncio.Event()

    async def worker(run):
        await run.call("find", {"to": "LHR"}, booked)
        called.set()
        await go.wait()
        await run.call("find", {"to": "CDG"}, booked)
        await run.call("charge", {"order": 7}, booked)

    async with runlog.connect(url) as rl:
        await charge_seven_async(rl, run_id)
        async with rl.run(run_id) as run:
            beside = asyncio.create_task(worker(run))
            await called.wait()
            assert not (await run.call("mail", {"to": "Ada"}, booked)).recorded
            go.set()
            await beside
    assert "not asked for yet" in caplog.text


def test_calls_of_a_thread_that_has_ended_do_not_let_a_changed_call_run(url, run_id):
    charge_seven(url, run_id)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        thread = threading.Thread(target=lambda: run.call("find", {"to": "LHR"}, never))
        thread.start()
        thread.join()
        with pytest.raises(Diverged):
            run.call("charge", {"order": 7, "currency": "EUR"}, never)
