"""A LangGraph checkpointer on Runlog."""

from ._graphs import offer_types
from ._saver import RunlogSaver, ThreadOwner

__all__ = ["RunlogSaver", "ThreadOwner"]

offer_types()
