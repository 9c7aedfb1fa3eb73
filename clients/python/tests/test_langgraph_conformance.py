"""langgraph-checkpoint-conformance: the saver has all eight capabilities, and passes all 81 tests."""

from __future__ import annotations

import uuid

from langgraph.checkpoint.conformance import checkpointer_test, validate

from runlog.langgraph import RunlogSaver

COUNTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


async def test_the_conformance_suite_detects_eight_capabilities_and_passes_81_of_81(url, capsys):
    @checkpointer_test(name="RunlogSaver")
    async def saver():
        async with RunlogSaver.connect(url, prefix=f"{uuid.uuid4()}/") as fresh:
            yield fresh

    report = await validate(saver)
    with capsys.disabled():
        report.print_report()
    results = report.to_dict()["results"]
    counted = {}
    for name, result in results.items():
        assert result["detected"] and result["passed"], result
        counted[name] = result["tests_passed"]
        assert result["tests_failed"] == 0
    assert counted == COUNTS and sum(counted.values()) == 81
