"""The service image for tests, with the package `testcontainers`: on a local journal, or with Kafka beside it.

    with RunlogContainer() as runlog: … runlog.url
    with RunlogOnKafka() as runlog: … runlog.url, runlog.brokers

`make image kafka-image` builds the images.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import httpx2
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from .errors import Action, Unavailable

IMAGE = "runlog/runlog:dev"
KAFKA_IMAGE = "runlog/kafka:4.3.0"
PORT = 7070
READY_WAIT = 120.0
"""Seconds until a server must be ready."""
_POLL = 0.1
_KAFKA = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}


@contextmanager
def _explained() -> Generator[None]:
    """Says what Docker lacks, in place of an error of its API."""
    try:
        yield
    except DockerException as error:
        if "ryuk" in str(error):
            way = (
                "testcontainers also starts its image testcontainers/ryuk, which cannot be pulled: pull it while there is a "
                "network, or set TESTCONTAINERS_RYUK_DISABLED=true, after which the containers of a killed test stay"
            )
        else:
            way = "is Docker running, and are the images there? `make image kafka-image` builds them"
        raise Unavailable(f"a container did not start: {way}: {error}", action=Action.FIX_THE_INPUT) from error


class RunlogContainer(DockerContainer):
    """A server with a separate journal, on Kafka if `brokers` is set. Only for tests: it has no authentication and
    no TLS."""

    def __init__(self, image: str = IMAGE, *, brokers: str | None = None, **settings: Any) -> None:
        super().__init__(image, **settings)
        log = f"--brokers {brokers}" if brokers else "--local"
        flags = f"--data /data --listen 0.0.0.0:{PORT} --insecure-no-tls --insecure-no-auth"
        self.with_command(f"serve {log} {flags}")
        self.with_exposed_ports(PORT)

    @property
    def url(self) -> str:
        """The server's URL on this machine."""
        host = self.get_container_host_ip()
        # A server only accepts requests for IP addresses and this name.
        return f"http://{'127.0.0.1' if host == 'localhost' else host}:{self.get_exposed_port(PORT)}"

    def start(self) -> RunlogContainer:
        """Starts it, and waits until it is ready."""
        with _explained():
            super().start()
        ends = time.monotonic() + READY_WAIT
        while not self._is_ready():
            if time.monotonic() > ends:
                out, err = self.get_logs()
                raise Unavailable(f"the server was not ready within {READY_WAIT:g} s: {(out + err)[-2000:]!r}")
            time.sleep(_POLL)
        return self

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx2.TransportError:
            return False


class RunlogOnKafka:
    """A broker and its server, in a separate network."""

    def __init__(self, image: str = IMAGE, kafka_image: str = KAFKA_IMAGE) -> None:
        self._images = image, kafka_image
        self._ends = ExitStack()
        self.brokers = ""
        """Kafka's address on this machine."""
        self.url = ""
        """The server's URL on this machine."""

    def __enter__(self) -> RunlogOnKafka:
        image, kafka_image = self._images
        with _explained(), ExitStack() as ends:
            network = ends.enter_context(Network())
            # A broker reports its address to clients, so its port is chosen before it starts.
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = int(free.getsockname()[1])
            self.brokers = f"127.0.0.1:{port}"
            kafka = DockerContainer(kafka_image).with_network(network).with_network_aliases("kafka")
            kafka.with_bind_ports(9092, port)
            for name, value in _KAFKA.items():
                kafka.with_env(name, value)
            kafka.with_env("KAFKA_ADVERTISED_LISTENERS", f"EXTERNAL://{self.brokers},INTERNAL://kafka:19092")
            ends.enter_context(kafka)
            self._wait_for_kafka(kafka)
            server = RunlogContainer(image, brokers="kafka:19092").with_network(network)
            self.url = ends.enter_context(server).url
            self._ends = ends.pop_all()
        return self

    def _wait_for_kafka(self, kafka: DockerContainer) -> None:
        ends = time.monotonic() + READY_WAIT
        while kafka.exec(["sh", "-c", "nc -w 1 127.0.0.1 19092 </dev/null"]).exit_code != 0:
            if time.monotonic() > ends:
                raise Unavailable(f"Kafka was not ready within {READY_WAIT:g} s")
            time.sleep(_POLL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
