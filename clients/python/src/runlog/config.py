"""How a server is reached, and the limits on time and memory."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ._checks import check_text, is_positive
from ._private_file import read_private
from ._redact import Redaction
from .errors import Usage

SERVERS_MAX = 16
TOKEN_BYTES_MAX = 16 << 10
"""The longest token file, bytes: the longest JWT that a server accepts."""
KEY_BYTES_MAX = 1 << 20
_TOKEN = re.compile(r"[\x21-\x7e]+")
"""The characters that a token in a header may have."""
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def current_traceparent() -> str | None:
    """The W3C `traceparent` of OpenTelemetry's current span. `None` without OpenTelemetry or without a span."""
    try:
        from opentelemetry import trace  # pyright: ignore
    except ImportError:
        return None
    span = trace.get_current_span().get_span_context()  # pyright: ignore
    if not span.is_valid:  # pyright: ignore
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"  # pyright: ignore


def _claimed_by() -> str:
    return f"{socket.gethostname()}, process {os.getpid()}"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a connection."""

    url: str | Sequence[str]
    """`http://HOST:PORT` or `https://HOST:PORT`. Several servers of one journal: a sequence, or one text with commas."""
    agent: str = "agent"
    """The `agent_id` of every record."""
    claimed_by: str = field(default_factory=_claimed_by)
    """Names the claiming process for people."""
    token: str | None = field(default=None, repr=False)
    """A bearer token. Default: `token_file`, then the environment's `RUNLOG_TOKEN`, then `RUNLOG_TOKEN_FILE`."""
    token_file: str | os.PathLike[str] | None = None
    """A file with the token, which only its owner may use. It is read again when the server refuses the token."""
    ca: str | os.PathLike[str] | None = None
    """PEM certificates to trust instead of the system's. Default: the environment's `RUNLOG_CA`."""
    client_cert: tuple[str, str] | None = None
    """A client certificate and its key, PEM files. Default: `RUNLOG_CLIENT_CERT` and `RUNLOG_CLIENT_KEY`."""
    deadline: float = 30.0
    """Seconds until an append or a query fails, with all its retries."""
    connect_deadline: float = 3.0
    """Seconds until an operation fails if no server has answered yet. After the first answer `deadline` applies alone."""
    read_back: float = 10.0
    """Seconds that the gate waits for its intent to be read back as applied. After that the effect does not run."""
    calls_max: int = 256
    """Calls of one handle in flight or with a held result. A further call waits."""
    redaction: Redaction | None = None
    """The content to remove from records before they are sent."""
    traceparent: Callable[[], str | None] = current_traceparent
    """Returns the W3C `traceparent` for records. A malformed value is not sent."""

    servers: tuple[str, ...] = field(init=False)
    """The URLs of the servers, in the order in which they are tried."""

    def __post_init__(self) -> None:
        check_text("the agent's name (agent=)", self.agent)
        for name in ("deadline", "connect_deadline", "read_back", "calls_max"):
            if not is_positive(getattr(self, name)):
                raise Usage(f"{name} is a number above 0, not {getattr(self, name)!r}")
        if not callable(self.traceparent):
            raise Usage("traceparent is a function that returns the text of the header, or None")
        found = self.url.split(",") if isinstance(self.url, str) else self.url
        servers = tuple(dict.fromkeys(_server(url.strip()) for url in found))
        if not 1 <= len(servers) <= SERVERS_MAX:
            raise Usage(f"name 1 to {SERVERS_MAX} servers, not {len(servers)}")
        object.__setattr__(self, "servers", servers)
        in_clear = [
            url for url in servers if url.startswith("http:") and not _is_loopback(urlsplit(url).hostname or "")
        ]
        if self.read_token() and in_clear:
            raise Usage(f"a token is sent over https or to this machine only, not to {in_clear[0]}")

    def read_token(self) -> str | None:
        """Reads the token."""
        found = self._read_token()
        if found is not None:
            check_text("the token", found)
        if found and not _TOKEN.fullmatch(found):
            raise Usage("the token has characters that no token has: it is one line of visible ASCII characters")
        return found

    def _read_token(self) -> str | None:
        if self.token is not None:
            return self.token
        path = self.token_file
        if path is None:
            if token := os.environ.get("RUNLOG_TOKEN"):
                return token
            path = os.environ.get("RUNLOG_TOKEN_FILE")
        if not path:
            return None
        try:
            return read_private(path, "token file", TOKEN_BYTES_MAX).decode("ascii").strip()
        except UnicodeDecodeError as error:
            raise Usage(f"the token file {path} has characters that no token has") from error

    def tls(self) -> ssl.SSLContext | bool:
        """The TLS context that verifies the server's certificate."""
        if not any(url.startswith("https:") for url in self.servers):
            return True
        ca = self.ca or os.environ.get("RUNLOG_CA") or None
        pair = self.client_cert
        if isinstance(pair, str):
            raise Usage("client_cert has two files: (certificate, key); both may be the same file")
        if pair is None and (cert := os.environ.get("RUNLOG_CLIENT_CERT")):
            pair = (cert, os.environ.get("RUNLOG_CLIENT_KEY") or cert)
        if pair:
            read_private(pair[1] or pair[0], "private key", KEY_BYTES_MAX)
        try:
            context = ssl.create_default_context(cafile=os.fspath(ca) if ca else None)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Usage(f"the authorities' file {ca} (ca= or RUNLOG_CA) cannot be read: {why}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if pair:
                context.load_cert_chain(*pair)
        except OSError as error:
            raise Usage(
                f"the client certificate {' with the key '.join(filter(None, pair or ()))} cannot be read: {error}"
            ) from error
        return context

    def trace(self) -> str | None:
        """The current `traceparent`, if it is well formed."""
        found = self.traceparent()
        return found if found and _TRACEPARENT.fullmatch(found) else None


def _server(url: str) -> str:
    """Checks the URL of a server."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Usage(f"{url!r} is not the URL of a server: {error}") from error
    if parts.username or parts.password:
        raise Usage("credentials do not belong into a server's URL: pass token= or token_file=")
    if parts.scheme in ("local", "kafka"):
        raise Usage(
            f"{url!r} is a journal without a server: Python speaks HTTP only, so start `runlog serve`, and pass http://HOST:PORT"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Usage(f"{url!r} is not the URL of a server: http://HOST:PORT or https://HOST:PORT")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")
