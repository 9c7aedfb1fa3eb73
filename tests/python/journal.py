"""A server with TLS and tokens, and a small HTTP client: for the scripts of this folder that test a server from outside."""

import asyncio
import json
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import urllib.parse

TOP = pathlib.Path(__file__).resolve().parents[2]
RUNLOG = pathlib.Path(os.environ.get("RUNLOG_BIN", TOP / "bin/runlog"))
KAFKA_IMAGE = os.environ.get("RUNLOG_KAFKA_IMAGE", "runlog/kafka:4.3.0")
# Time limit of each step that is not measured, seconds.
WAIT = 60


def run(*command, **variables):
    """Runs a command and returns its output."""
    ran = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, env=os.environ | variables
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_secrets(folder):
    """Makes an authority, certificates and a token, as `make up` does."""
    run(TOP / "scripts/secrets.sh", RUNLOG_SECRETS=str(folder))


def create_token(folder, principal, scopes, runs):
    """A new token of `folder/tokens.json`."""
    made = run(RUNLOG, "--json", "--quiet", "token", "create", "--tokens", folder / "tokens.json", "--principal", principal,
               "--scope", scopes, "--runs", runs)
    return json.loads(made)["token"]


def percentile(values, share):
    """The percentile of the values: the value at `share` (0 to 1) of their order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Server:
    """`runlog serve` on a folder, until `end`. `memory_max` limits its memory, bytes."""

    def __init__(self, folder, *flags, memory_max=None):
        folder.mkdir(exist_ok=True, parents=True)
        self.errors = open(folder / "errors", "w+")
        command = [RUNLOG, "--json", "--quiet", "serve", "--data", folder / "data", "--listen", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=self.errors, text=True,
            preexec_fn=memory_max and (lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory_max, memory_max))),
        )
        # Its first line says where it listens.
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(WAIT)
            self.errors.seek(0)
            raise RuntimeError(f"the server does not start: {self.errors.read()}")
        self.started = json.loads(line)
        self.url = self.started["listening"]
        self.port = int(self.url.rsplit(":", 1)[1])

    def status(self, name):
        """A number of /proc: VmRSS and VmHWM in KiB, Threads."""
        with open(f"/proc/{self.process.pid}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as line:
            fields = line.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.terminate()
        code = self.process.wait(WAIT)
        self.process.stdout.close()
        self.errors.close()
        return code


class Connection:
    """One HTTP/1.1 connection, to `127.0.0.1:port`."""

    def __init__(self, reader, writer, host, token):
        self.reader, self.writer, self.host, self.token = reader, writer, host, token

    @classmethod
    async def open(cls, port, trust=None, token=None, host="localhost"):
        """Connects, with TLS if `trust` is given: a file of authorities, or an `ssl.SSLContext`."""
        context = trust if trust is None or isinstance(trust, ssl.SSLContext) else ssl.create_default_context(cafile=trust)
        name = host if context else None
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name), host, token)

    def head(self, method, path, length=None, headers=()):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        if length is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return ("\r\n".join([*lines, *headers]) + "\r\n\r\n").encode()

    async def send(self, method, path, body=None, headers=()):
        text = None if body is None else json.dumps(body).encode()
        self.writer.write(self.head(method, path, None if text is None else len(text), headers) + (text or b""))
        await self.writer.drain()

    async def begin(self):
        """The status and the headers of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        return int(head[0].split(" ")[1]), headers

    async def chunk(self):
        """The next chunk of a chunked body; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self):
        """The next answer: its status and its body."""
        status, headers = await self.begin()
        if "content-length" in headers:
            return status, await self.reader.readexactly(int(headers["content-length"]))
        parts = []
        if headers.get("transfer-encoding") == "chunked":
            while part := await self.chunk():
                parts.append(part)
        return status, b"".join(parts)

    async def ask(self, method, path, body=None, headers=()):
        await self.send(method, path, body, headers)
        return await self.answer()

    async def request_call(self, run_id):
        """Claims a run, and appends the request of a call of `book` without arguments."""
        path = f"/v1/runs/{urllib.parse.quote(run_id, safe='')}"
        status, body = await self.ask("POST", f"{path}/claims", {"claimed_by": "me"})
        assert status == 200, body
        payload = {"type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "book", "arguments": {}}
        record = {"run_id": run_id, "record_id": "call", "writer_id": json.loads(body)["writer_id"], "writer_epoch": 1,
                  "payload": payload}
        status, body = await self.ask("POST", f"{path}/records", record)
        assert status == 200, body

    def close(self):
        self.writer.transport.abort()


def turn(run_id, record_id, text):
    """A record that needs no claim."""
    payload = {"type": "conversation_turn", "message_id": record_id, "kind": "user", "content": text}
    return {"run_id": run_id, "record_id": record_id, "payload": payload}
