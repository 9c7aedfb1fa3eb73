"""Makes LangGraph's graphs pass the types that they name to a `RunlogSaver`."""

from __future__ import annotations

from typing import Any

from ._saver import RunlogSaver


def offer_types() -> None:
    """Makes each graph give its types to the `RunlogSaver` that it is about to use, whenever the graph was compiled.

    LangGraph does so itself only if the environment has `LANGGRAPH_STRICT_MSGPACK`. Nothing changes for other savers. Without
    LangGraph, or in a version whose graphs have no such step, types must be in the saver's `allow`."""
    try:
        from langgraph.pregel import Pregel  # pyright: ignore
    except ImportError:
        return
    own: Any = getattr(Pregel, "_apply_checkpointer_allowlist", None)
    if own is None:
        return

    def apply(graph: Any, checkpointer: Any) -> Any:
        if isinstance(checkpointer, RunlogSaver):
            checkpointer = checkpointer.for_graph(graph)
        return own(graph, checkpointer)

    Pregel._apply_checkpointer_allowlist = apply  # pyright: ignore
