"""A LangGraph checkpointer on Runlog."""

from ._saver import RunlogSaver

__all__ = ["RunlogSaver"]
