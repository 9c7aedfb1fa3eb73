"""Prints a thread for people, newest checkpoint first: `python -m runlog.langgraph --prefix chat/ THREAD`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing

from langgraph.checkpoint.base import CheckpointTuple

from .. import config, errors
from .._api import Api
from .._drive import SyncDriver
from .._http import SyncHttp
from ._masked import masked_checkpoints
from ._plain import PlainSerializer
from ._saver import PREFIX, RunlogSaver


def _shown(found: CheckpointTuple) -> dict[str, object]:
    configurable = found.config.get("configurable", {})
    parent = (found.parent_config or {}).get("configurable", {})
    writes = [{"task": task, "channel": channel, "value": value} for task, channel, value in found.pending_writes or ()]
    return {
        "checkpoint": configurable.get("checkpoint_id"),
        "parent": parent.get("checkpoint_id"),
        "namespace": configurable.get("checkpoint_ns"),
        "at": found.checkpoint.get("ts"),
        "metadata": found.metadata,
        "values": found.checkpoint["channel_values"],
        "writes": writes,
    }


def _checkpoints(settings: config.Config, prefix: str, thread: str, last: int) -> Iterator[dict[str, object]]:
    place = {"configurable": {"thread_id": thread}}
    with RunlogSaver(settings, prefix=prefix, serde=PlainSerializer()) as saver:
        try:
            for each in saver.list(place, limit=last):  # pyright: ignore[reportArgumentType]
                yield _shown(each)
            return
        except errors.Forbidden as error:
            # A list begins with a query that needs the scope, so the error precedes all output.
            with closing(SyncHttp(settings)) as http:
                found = SyncDriver(http).drive(masked_checkpoints(Api(settings), prefix + thread, last))
            if found is None:
                raise
            print(f"the contents are masked: {error}", file=sys.stderr)
            yield from found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m runlog.langgraph",
        description="Prints the checkpoints of a LangGraph thread as JSON, newest first. Reads only, and calls no type that a "
        "checkpoint names. Without the scope read_content contents are masked. RUNLOG_TOKEN, RUNLOG_CA and the like are read as by "
        "the command runlog.",
    )
    parser.add_argument("thread", help="the thread's id, without the prefix")
    parser.add_argument("--prefix", default=PREFIX, help=f"the prefix of the saver [default: {PREFIX}]")
    parser.add_argument("--server", default=os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070"))
    parser.add_argument("--last", type=int, default=1, metavar="N", help="how many checkpoints [default: 1]")
    options = parser.parse_args()
    found = False
    try:
        for each in _checkpoints(config.Config(options.server), options.prefix, options.thread, options.last):
            found = True
            text = json.dumps(each, indent=2, ensure_ascii=False, default=repr)
            print(errors.HIDDEN.sub(lambda hidden: json.dumps(hidden[0])[1:-1], text))
    except errors.Error as error:
        print(f"error ({error.kind}): {error}", file=sys.stderr)
        return 1
    if not found:
        of_saver = f"is {options.prefix!r} the prefix of its saver? --prefix names another prefix"
        print(f"error (not_found): run {options.prefix}{options.thread} has no checkpoint; {of_saver}", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
