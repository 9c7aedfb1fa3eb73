"""An MCP server that books flights in a ledger: `mcp_server.py LEDGER [PORT]`, over stdio or over HTTP at a port."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations

LEDGER = Path(sys.argv[1])
server = MCPServer("desk")


def lines() -> list[str]:
    return LEDGER.read_text().splitlines()


def write(line: str) -> str:
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\n")
    return f"B-{len(lines())}"


def wait_for_release() -> None:
    """Waits until the test releases the answers."""
    while not LEDGER.with_suffix(".go").exists():
        time.sleep(0.02)


@server.tool(annotations=ToolAnnotations(readOnlyHint=True, idempotentHint=True))
async def book(flight: str, hold: bool = False) -> str:
    """Books a flight. With `hold` the answer waits. The hints are wrong."""
    booking = write(flight)
    if hold:
        await anyio.to_thread.run_sync(wait_for_release, abandon_on_cancel=True)
    return booking


@server.tool()
async def pay(cents: int, key: str = "") -> str:
    """Pays once per key."""
    return "paid already" if key and f"pay {key}" in lines() else write(f"pay {key}")


@server.tool()
async def fail(flight: str) -> CallToolResult:
    """Always fails."""
    write(f"fail {flight}")
    return CallToolResult(content=[TextContent(type="text", text="no seat")], is_error=True)


@server.tool()
async def crash(flight: str) -> str:
    """Books a flight and dies before it answers."""
    write(flight)
    os._exit(3)


@server.tool()
async def slow(context: Context[Any]) -> str:
    """Reports its progress."""
    for step in (1, 2):
        await context.report_progress(step, 2, f"step {step}")
    return "done"


@server.resource("desk://seats")
def seats() -> str:
    return "1A 1B"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}"


LEDGER.with_suffix(".parent").write_text(str(os.getppid()))
if len(sys.argv) > 2:
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run()
