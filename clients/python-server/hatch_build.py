"""Puts the command, and the RocksDB library beside it, into the wheel: from `bin/` of the repository, or `RUNLOG_BIN_DIR`."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Binary(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(os.environ.get("RUNLOG_BIN_DIR", Path(self.root).parents[1] / "bin"))
        command = folder / "runlog"
        if not os.access(command, os.X_OK):
            raise FileNotFoundError(f"{command} is missing: make build makes it")
        for file in [command, *sorted(folder.glob("librocksdb.so.*"))]:
            build_data["force_include"][str(file)] = f"runlog_server/bin/{file.name}"
        build_data["pure_python"] = False
        # Any Python, and this kind of machine. Not "manylinux": the command needs OpenSSL 3 of the system.
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"
