"""Prints a thread for people, newest checkpoint first: `python -m runlog.langgraph --prefix chat/ THREAD`."""

from __future__ import annotations

import argparse
import json
import os
import sys

from langgraph.checkpoint.base import CheckpointTuple

from .. import config, errors
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


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m runlog.langgraph",
        description="Prints the checkpoints of a LangGraph thread as JSON, newest first. Reads only, and calls no type that a "
        "checkpoint names. RUNLOG_TOKEN, RUNLOG_CA and the like are read as by the command runlog.",
    )
    parser.add_argument("thread", help="the thread's id, without the prefix")
    parser.add_argument("--prefix", default=PREFIX, help=f"the prefix of the saver [default: {PREFIX}]")
    parser.add_argument("--server", default=os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070"))
    parser.add_argument("--last", type=int, default=1, metavar="N", help="how many checkpoints [default: 1]")
    options = parser.parse_args()
    try:
        place = {"configurable": {"thread_id": options.thread}}
        with RunlogSaver(config.Config(options.server), prefix=options.prefix, serde=PlainSerializer()) as saver:
            found = False
            for each in saver.list(place, limit=options.last):  # pyright: ignore[reportArgumentType]
                found = True
                text = json.dumps(_shown(each), indent=2, ensure_ascii=False, default=repr)
                print(errors.HIDDEN.sub(lambda hidden: json.dumps(hidden[0])[1:-1], text))
    except errors.Error as error:
        print(f"error ({error.kind}): {error}", file=sys.stderr)
        return 1
    if not found:
        print(f"error (not_found): run {options.prefix}{options.thread} has no checkpoint", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
