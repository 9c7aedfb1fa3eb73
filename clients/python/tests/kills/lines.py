"""Files of lines that several processes write, any of which may be killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Adds a line in one write."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)
