"""Certificates and tokens, against a proxy that ends TLS before the real server and wants a token."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import socket
import ssl
import threading
from urllib.parse import urlsplit

import pytest
import trustme

import runlog
from runlog import Config, Fenced, Unauthenticated, Unavailable, Usage, sync


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests with the right token, over connections with the right certificate."""

    daemon_threads = True

    def __init__(self, server: str, authority: trustme.CA, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.token, self.refused = urlsplit(server).netloc, token, 0
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        self.context = context
        self.url = f"https://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, object]:
        accepted, address = super().get_request()
        connection = self.context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        try:
            connection.do_handshake()
        except OSError:
            # Closing with unread bytes would reset the connection, and the client would lose the alert.
            with connection, contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(1)
                while connection.recv(4096):
                    pass
            raise
        return connection, address

    def handle_error(self, request, client_address) -> None:
        """Does not report a client that is not trusted."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("authorization") != f"Bearer {self.server.token}":
            self.server.refused += 1
            kind = b'{"title": "unauthorized", "status": 401, "detail": "no token", "kind": "unauthorized"}'
            self.answer(401, kind)
            return
        upstream = http.client.HTTPConnection(self.server.upstream)
        upstream.request(self.command, self.path, body, {"content-type": "application/json"})
        answer = upstream.getresponse()
        self.answer(answer.status, answer.read())
        upstream.close()

    do_POST = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def tls(url, tmp_path):
    authority = trustme.CA()
    ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(ca)
    client.touch(mode=0o600)
    authority.issue_cert("agent").private_key_and_cert_chain_pem.write_to_path(client)
    proxy = Proxy(url, authority, "secret")
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    yield proxy, str(ca), str(client)
    proxy.shutdown()
    thread.join()
    proxy.server_close()


def test_a_run_over_tls_with_a_client_certificate_and_a_token_that_is_renewed(tls, run_id, tmp_path, monkeypatch):
    proxy, ca, client = tls
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("secret\n")
    monkeypatch.setenv("RUNLOG_TOKEN_FILE", str(token))
    with sync.connect(proxy.url, ca=ca, client_cert=(client, client)) as rl:
        run = rl.open(run_id)
        assert run.call("pay", {}, lambda call: 1).result == 1
        assert proxy.refused == 0
        proxy.token = "another"
        token.write_text("another")
        assert run.call("pay", {}, lambda call: 2).result == 2
        assert proxy.refused == 1
        proxy.token = "a third one"
        with pytest.raises(Unauthenticated) as error:
            run.call("pay", {}, lambda call: pytest.fail("ran"))
        assert error.value.action == "credentials" and error.value.happened == "nothing"
        proxy.token = "another"
        assert run.call("pay", {}, lambda call: 3).result == 3


def test_a_server_or_a_client_that_is_not_trusted_gets_nothing(tls, run_id, monkeypatch):
    proxy, ca, client = tls
    with sync.connect(proxy.url, token="secret", deadline=0.2) as rl, pytest.raises(Unavailable, match="certificate"):
        rl.open(run_id)
    with sync.connect(proxy.url, token="secret", ca=ca, deadline=0.2) as rl, pytest.raises(Unavailable):
        rl.open(run_id)
    monkeypatch.setenv("RUNLOG_CA", ca)
    monkeypatch.setenv("RUNLOG_CLIENT_CERT", client)
    monkeypatch.setenv("RUNLOG_TOKEN", "secret")
    with sync.connect(proxy.url) as rl:
        old = rl.open(run_id)
        rl.open(run_id)
        with pytest.raises(Fenced):
            old.turn("user", "hello")


async def test_a_tls_alert_of_an_async_connection_says_what_to_do(tls, run_id):
    proxy, ca, _ = tls
    async with runlog.connect(proxy.url, ca=ca) as rl:
        with pytest.raises(Unavailable, match="client_cert=") as error:
            await rl.recover(run_id)
        assert error.value.action == "fix_the_input"


def test_a_token_file_that_others_may_use_is_refused(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("secret\n")
    is_root = os.geteuid() == 0
    accepted = {}
    for mode in (0o600, 0o400, 0o440, 0o640, 0o644, 0o604, 0o460, 0o620, 0o610, 0o602):
        token.chmod(mode)
        try:
            Config("http://127.0.0.1:1", token_file=token)
            accepted[mode] = True
        except Usage as error:
            assert str(token) in str(error) and f"mode {mode:o}" in str(error) and "chmod 600" in str(error)
            accepted[mode] = False
    assert [mode for mode, is_accepted in accepted.items() if is_accepted] == [
        0o600,
        0o400,
        *([0o440, 0o640] if is_root else []),
    ]
    if is_root:
        os.chown(token, 65534, 65534)
        token.chmod(0o440)
        with pytest.raises(Usage, match="chmod 600"):
            Config("http://127.0.0.1:1", token_file=token)
    token.chmod(0o644)
    monkeypatch.setenv("RUNLOG_TOKEN_FILE", str(token))
    with pytest.raises(Usage, match="chmod 600"):
        sync.connect("http://127.0.0.1:1")
    monkeypatch.delenv("RUNLOG_TOKEN_FILE")
    with pytest.raises(Usage, match=r"the private key .* \(mode 644\)"):
        sync.connect("https://127.0.0.1:1", client_cert=(str(token), str(token)))
    with pytest.raises(Usage, match=r"the private key .* \(mode 644\)"):
        sync.connect("https://127.0.0.1:1", client_cert=(str(token), None))


def test_a_token_file_that_every_user_could_replace_is_refused(tmp_path):
    folder = tmp_path / "open"
    (folder / "inner").mkdir(parents=True)
    token, link = folder / "inner" / "token", tmp_path / "link"
    token.write_text("secret\n")
    token.chmod(0o600)
    link.symlink_to(token)
    for mode in (0o755, 0o775, 0o1777):
        folder.chmod(mode)
        assert {Config("http://127.0.0.1:1", token_file=path).read_token() for path in (token, link)} == {"secret"}
    folder.chmod(0o777)
    for path in (token, link):
        with pytest.raises(Usage, match=f"chmod o-w {folder.resolve()}"):
            Config("http://127.0.0.1:1", token_file=path)
