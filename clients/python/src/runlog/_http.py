"""Transports: they send requests over HTTP, and convert each failure of the HTTP library to `NoResponse`.

Request ─▶ transport ─▶ Response
              └──────── NoResponse: sent or not; `remedy`, if trying again does not help
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import suppress
from typing import Any, Protocol

import httpx2

from ._wire import NoResponse, Request, Response
from .config import Config
from .errors import Action, Unavailable, Usage

IDLE_MAX = 5.0
"""How long an idle connection is kept: less than the 10 s after which a server closes it."""
_LIMITS = httpx2.Limits(max_connections=512, max_keepalive_connections=64, keepalive_expiry=IDLE_MAX)
ANSWER_BYTES_MAX = 256 << 20
"""No answer of a server is longer: it has at most a payload of 64 MiB and a page of 16 MiB, escaped."""
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL)
_CAUSES_MAX = 8
_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError)
"""The exceptions of a request. A TLS alert arrives as the bare `ssl.SSLError` in the async client."""
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME = (10,), (9,), (62, 64)
"""Codes of OpenSSL's `X509_V_ERR_…`."""
_REFUSED_CLIENT = (
    "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "DECRYPT_ERROR",
)  # fmt: skip
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class _Token:
    """The bearer token, read again after the server refused it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._token = config.read_token()

    def headers(self, request: Request) -> dict[str, str]:
        headers = {"accept": "application/json", **request.headers}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    def changed(self) -> bool:
        """Reads the token again. Returns whether it changed. If it cannot be read, the server's refusal counts."""
        before = self._token
        with suppress(Usage):
            self._token = self._config.read_token()
        return self._token != before


def _arguments(request: Request, first: str, token: _Token) -> dict[str, Any]:
    """The arguments of a request for the HTTP library."""
    return {
        "method": request.method,
        "url": (request.server or first) + request.path,
        "content": request.body,
        "headers": token.headers(request),
        "timeout": httpx2.Timeout(request.timeout, connect=min(request.timeout, request.connect)),
    }


def _no_response(error: Exception) -> NoResponse:
    remedy = _remedy(error)
    sent = remedy is None and not isinstance(error, _NOT_SENT)
    return NoResponse(_why(error), sent=sent, remedy=remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """A failure and its causes."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _why(error: BaseException) -> str:
    """The text of a failure, with the system's reason, which a library may leave out. It is all that a user gets to see: the
    library's tracebacks would hide it."""
    why = f"{type(error).__name__}: {error}".rstrip(": ")
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) else None
        if number is not None and number > 0 and (reason := os.strerror(number)) not in why:
            return f"{why} ({reason})"
    return why


def _remedy(error: BaseException) -> str | None:
    """Explains a permanent failure and names the remedy. `None` for a failure that a later try may not meet."""
    for cause in _causes(error):
        if isinstance(cause, httpx2.InvalidURL):
            return "check the server's URL"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _of_certificate(cause.verify_code)
        if isinstance(cause, ssl.SSLError):
            return _of_tls(cause.reason or "")
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            return "no machine has this name: check the server's URL"
    return None


def _of_certificate(code: int) -> str:
    if code in _EXPIRED:
        return "the server's certificate has expired: renew it, and check this machine's clock"
    if code in _NOT_YET_VALID:
        return "the server's certificate is not valid yet: check this machine's clock"
    if code in _OTHER_NAME:
        return "the server's certificate is for another name: use a name of the certificate in the URL"
    return "the server's certificate is of an authority that is not trusted here: name the authority's file with ca= or RUNLOG_CA"


def _of_tls(reason: str) -> str | None:
    if reason in _NO_TLS:
        return "the server does not speak TLS: use http://"
    if reason.endswith("CERTIFICATE_REQUIRED"):
        return (
            "the server asks for a client certificate: name its files with client_cert=, or RUNLOG_CLIENT_CERT and "
            "RUNLOG_CLIENT_KEY"
        )
    if "ALERT" in reason and reason.endswith(_REFUSED_CLIENT):
        return "the server does not accept this client's certificate"
    return None


class _Body:
    """The body of an answer, as it arrives. The server may be another program than the URL promises."""

    def __init__(self) -> None:
        self._parts, self._size = list[bytes](), 0

    def add(self, part: bytes) -> None:
        """Raises `NoResponse` beyond `ANSWER_BYTES_MAX`."""
        self._size += len(part)
        if self._size > ANSWER_BYTES_MAX:
            why = f"the answer has more than {ANSWER_BYTES_MAX} bytes, which no Runlog server sends"
            raise NoResponse(why, sent=True, remedy="check the server's URL")
        self._parts.append(part)

    def response(self, answer: httpx2.Response) -> Response:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, headers, b"".join(self._parts))


def _read(answer: httpx2.Response) -> Response:
    body = _Body()
    for part in answer.iter_bytes():
        body.add(part)
    return body.response(answer)


async def _aread(answer: httpx2.Response) -> Response:
    body = _Body()
    async for part in answer.aiter_bytes():
        body.add(part)
    return body.response(answer)


def _check_open(is_closed: bool, server: str) -> None:
    if is_closed:
        message = f"the connection to {server} was closed in this process: connect again, and open the run there"
        raise Unavailable(message, action=Action.FIX_THE_INPUT)


class SyncTransport(Protocol):
    """Sends requests."""

    def send(self, request: Request) -> Response:
        """Raises `NoResponse` if there is no whole answer."""
        ...

    def stream(self, request: Request) -> Generator[Response | bytes]:
        """Yields the head of an answer, then its bytes as they arrive. An answer that is an error comes whole, as the head.
        Raises `NoResponse` if it breaks off."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...


class AsyncTransport(Protocol):
    """Sends requests."""

    async def send(self, request: Request) -> Response:
        """Raises `NoResponse` if there is no whole answer."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Response | bytes]:
        """As `SyncTransport.stream`."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


class SyncHttp:
    """Sends requests over HTTP."""

    def __init__(self, config: Config) -> None:
        self._first, self._token = config.servers[0], _Token(config)
        self._client = httpx2.Client(verify=config.tls(), limits=_LIMITS, trust_env=False)

    def send(self, request: Request) -> Response:
        """Sends a request; once more with a new token if the token was refused."""
        _check_open(self._client.is_closed, self._first)
        try:
            answer = self._send(request)
            return self._send(request) if answer.status == 401 and self._token.changed() else answer
        except _FAILURES as error:
            raise _no_response(error) from None

    def _send(self, request: Request) -> Response:
        with self._client.stream(**_arguments(request, self._first, self._token)) as answer:
            return _read(answer)

    def stream(self, request: Request) -> Generator[Response | bytes]:
        """Yields the head of an answer, then its bytes."""
        _check_open(self._client.is_closed, self._first)
        try:
            with self._client.stream(**_arguments(request, self._first, self._token)) as answer:
                if answer.status_code != 200:
                    yield _read(answer)
                    return
                yield Response(200, {}, b"")
                yield from answer.iter_bytes()
        except _FAILURES as error:
            raise _no_response(error) from None

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


class AsyncHttp:
    """Sends requests over HTTP."""

    def __init__(self, config: Config) -> None:
        self._first, self._token = config.servers[0], _Token(config)
        self._client = httpx2.AsyncClient(verify=config.tls(), limits=_LIMITS, trust_env=False)

    async def send(self, request: Request) -> Response:
        """Sends a request; once more with a new token if the token was refused."""
        _check_open(self._client.is_closed, self._first)
        try:
            answer = await self._send(request)
            return await self._send(request) if answer.status == 401 and self._token.changed() else answer
        except _FAILURES as error:
            raise _no_response(error) from None

    async def _send(self, request: Request) -> Response:
        async with self._client.stream(**_arguments(request, self._first, self._token)) as answer:
            return await _aread(answer)

    async def stream(self, request: Request) -> AsyncGenerator[Response | bytes]:
        """Yields the head of an answer, then its bytes."""
        _check_open(self._client.is_closed, self._first)
        try:
            async with self._client.stream(**_arguments(request, self._first, self._token)) as answer:
                if answer.status_code != 200:
                    yield await _aread(answer)
                    return
                yield Response(200, {}, b"")
                async for part in answer.aiter_bytes():
                    yield part
        except _FAILURES as error:
            raise _no_response(error) from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
