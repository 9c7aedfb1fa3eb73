"""The `runlog` command as a package: `runlog` on the PATH of the environment, and `binary()` for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["binary", "main"]


def binary() -> str:
    """The path of the command. The library that it needs is beside it."""
    return str(Path(__file__).with_name("bin") / "runlog")


def main() -> None:
    """Becomes the command, with this process's id and arguments."""
    os.execv(binary(), ["runlog", *sys.argv[1:]])
