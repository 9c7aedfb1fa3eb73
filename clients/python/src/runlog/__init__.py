"""The Python client of Runlog: it claims a run, records what an agent does, and runs no effect twice unnoticed.

`runlog` is async; `runlog.sync` has the same names for plain code.
"""

from __future__ import annotations

from ._effect import Answer, Call
from ._ends import Ends
from ._handle import Recovery
from ._json import Json
from ._operators import Effect
from ._redact import REDACTED, Redaction
from ._tool import AsyncTool, SyncTool, current_run, tool
from .aio import Run, Runlog, connect
from .config import Config
from .errors import (
    Action,
    Active,
    ClaimLost,
    Conflict,
    Diverged,
    Error,
    Failed,
    Fenced,
    Forbidden,
    Forked,
    Happened,
    Internal,
    Invalid,
    MissingContent,
    NotFound,
    Overloaded,
    PartitionStopped,
    ReconcileRequired,
    ResultNotRecorded,
    Stale,
    TimedOut,
    TooLarge,
    TypeNotAllowed,
    Unauthenticated,
    Unavailable,
    Unknown,
    Usage,
)  # fmt: skip

__all__ = [
    "REDACTED", "Action", "Active", "Answer", "AsyncTool", "Call", "ClaimLost", "Config", "Conflict", "Diverged",
    "Effect", "Ends", "Error", "Failed", "Fenced", "Forbidden", "Forked", "Happened", "Internal", "Invalid", "Json",
    "MissingContent", "NotFound", "Overloaded", "PartitionStopped", "ReconcileRequired", "Recovery", "Redaction",
    "ResultNotRecorded", "Run", "Runlog", "Stale", "SyncTool", "TimedOut", "TooLarge", "TypeNotAllowed",
    "Unauthenticated", "Unavailable", "Unknown", "Usage", "connect", "current_run", "tool",
]  # fmt: skip
