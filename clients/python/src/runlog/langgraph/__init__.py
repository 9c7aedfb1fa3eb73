"""A LangGraph checkpointer on Runlog."""

from ._saver import RunlogSaver, ThreadOwner

__all__ = ["RunlogSaver", "ThreadOwner"]
