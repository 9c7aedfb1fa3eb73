"""Ids of runs and threads: any text names its own run, and is answered as it was given."""

from __future__ import annotations

import pytest

from runlog import Usage, sync
from runlog.langgraph import RunlogSaver

IDS = [
    "a", "A", "a ", " a", "a/", "/a", "a//b", "a/b", "a/./b", "a/../b", "a%2Fb", "a%2fb", "a%", "a+b", "a b", "a?b",
    "a#b", "a&b=c", "a;b", "a:b", "a@1", "a\\b", "a'b\"c", "*", "a\x00b", "a\nb", "\x7f", "é", "e\u0301", "\U0001f600",
    "\u202eb", "\ufeffa", "a\u200b", "...", "x" * 900,
]  # fmt: skip
HALF = "a\udcff"


def test_runs_with_ids_of_any_text_are_apart(url, run_id):
    with sync.connect(url) as rl:
        for number, text in enumerate(IDS):
            with rl.run(f"{run_id}/{text}") as run:
                run.call("find", {"number": number}, lambda _, number=number: number)
                run.checkpoint([text], {"number": number})
        for number, text in enumerate(IDS):
            with rl.run(f"{run_id}/{text}") as run:
                assert run.id == f"{run_id}/{text}"
                assert (run.recovery.messages, run.recovery.state) == ([text], {"number": number})
            found = rl.lookup(f"{run_id}/{text}", "find", {"number": number})
            assert found is not None and len(rl.recover(f"{run_id}/{text}").completed) <= 1
        assert sorted(found["run_id"] for found in rl.runs(f"{run_id}/")) == sorted(f"{run_id}/{text}" for text in IDS)


@pytest.mark.parametrize("text", ["", ".", "..", "x" * 1025])
def test_an_id_that_no_url_can_name_is_refused(url, text):
    with sync.connect(url) as rl, pytest.raises(Usage, match="a run id has 1 to 1024 bytes"):
        rl.open(text)


def test_half_a_character_in_a_name_is_refused_before_anything_runs(url, run_id):
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for refused in (
            lambda: rl.open(HALF),
            lambda: rl.recover(HALF),
            lambda: list(rl.runs(HALF)),
            lambda: list(rl.undecided(HALF)),
            lambda: rl.lookup(run_id, HALF, {}),
            lambda: next(iter(rl.tail(HALF))),
            lambda: next(iter(rl.tail(run_id, start=HALF))),
            lambda: run.call(HALF, {}, lambda _: pytest.fail("ran")),
            lambda: run.call("find", {}, lambda _: pytest.fail("ran"), key=HALF),
            lambda: run.turn(HALF, "said"),
            lambda: sync.connect(url, agent=HALF),
        ):
            with pytest.raises(Usage, match="has half a character"):
                refused()
        # The name of a file may be in the text of an exception.
        run.end("failed", f"no such file: {HALF}")
        run.end("failed", f"no such file: {HALF}")
    with RunlogSaver.connect(url, prefix=run_id) as saver, pytest.raises(Usage, match="a run id has half a character"):
        saver.get_tuple({"configurable": {"thread_id": HALF, "checkpoint_ns": ""}})


def test_threads_with_ids_of_any_text_are_apart(url, prefix):
    def place(text):
        return {"configurable": {"thread_id": text, "checkpoint_ns": ""}}

    def checkpoint(number):
        return {
            "v": 4, "id": f"{number:04}", "ts": "2026-11-28T12:00:00Z", "channel_values": {"log": [number]},
            "channel_versions": {"log": 1}, "versions_seen": {}, "updated_channels": ["log"],
        }  # fmt: skip

    with RunlogSaver.connect(url, prefix=prefix) as saver:
        for number, text in enumerate(IDS):
            stored = saver.put(place(text), checkpoint(number), {"step": 0}, {"log": 1})
            saver.put_writes(stored, [("log", text)], "task")
        saver.delete_thread(IDS[0])
        for number, text in enumerate(IDS[1:], 1):
            found = saver.get_tuple(place(text))
            assert found.config["configurable"]["thread_id"] == text
            assert found.checkpoint["channel_values"] == {"log": [number]}
            assert [(channel, value) for _, channel, value in found.pending_writes] == [("log", text)]
        assert saver.get_tuple(place(IDS[0])) is None
        assert sorted(t.config["configurable"]["thread_id"] for t in saver.list(None)) == sorted(IDS[1:])
