"""A broker in a container, for test suites with Testcontainers: `pip install 'odradek[testcontainers]'`.

from odradek.testcontainers import OdradekContainer

with OdradekContainer(topics=["orders:4"]) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
    with broker.faults.add("EndTxn", nth=2, do="lose-answer") as rule:
        ...
    broker.clock.advance("7d")
"""

from __future__ import annotations

import io
import re
import secrets
import shlex
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ImportError as missing:
    from odradek.extras import install_command

    raise ImportError(f"odradek.testcontainers needs {install_command('testcontainers')}") from missing

from odradek.control_client import ControlClient
from odradek.deadlines import stretched
from odradek.errors import BrokerFailed
from odradek.handle import Handle
from odradek.remote import PORT_VARIABLE, TOKEN_VARIABLE, Remote
from odradek.security import Authority, Security
from odradek.words import Mechanism

KAFKA_PORT: Final = 9092
"""Port of the first node. The other nodes have the ports above it."""
CONTROL_PORT: Final = 18092
NODES_PORT: Final = 19092
"""Port of the first node's internal listener, for the other nodes and for tools inside the container."""
START_S: Final = stretched(60.0)
_FOLDER: Final = "/tmp"
_TLS: Final = "/tmp/odradek-tls"
_SCRIPT: Final = "odradek-start.sh"
_COMPLETE: Final = "odradek-start.complete"
_STARTED: Final = re.compile(r"Transitioning from RECOVERY to RUNNING")
_LOG_CHARACTERS_MAX: Final = 4000


class OdradekContainer(Handle, DockerContainer):
    """A container of the image, with the faults, clock, trace, transactions and nodes of its broker.

    ``topics`` are ``"orders:4"`` or ``{"orders": 4}``. ``settings`` are settings of Kafka and Odradek
    (docs/configuration.md), except the listeners. ``tls=True``, ``users`` and ``mechanism`` are as in ``odradek.Broker``;
    ``client_config`` returns a client's settings. Other options are those of ``DockerContainer``. ``start`` raises
    ``BrokerFailed`` with the broker's log.
    """

    def __init__(
        self,
        image: str = "odradek:latest",
        *,
        topics: Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, object] | None = None,
        nodes: int = 1,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        mechanism: Mechanism | None = None,
        **options: Any,
    ) -> None:
        super().__init__(image, **options)
        if isinstance(topics, Mapping):
            topics = [f"{name}:{partitions}" for name, partitions in topics.items()]
        self._security = Security.of(tls, users, mechanism, settings)
        self._arguments = ["--nodes", str(nodes)]
        if tls:
            self._arguments += ["--tls-directory", _TLS]
        for topic in topics:
            self._arguments += ["--topic", topic]
        for name, value in (settings or {}).items():
            self._arguments += ["--set", f"{name}={_text(value)}"]
        self._ports = [KAFKA_PORT + number for number in range(nodes)]
        self._token = secrets.token_urlsafe()
        self._remote: Remote | None = None
        self._certificates: tempfile.TemporaryDirectory[str] | None = None
        self.with_exposed_ports(*self._ports, CONTROL_PORT)
        self.with_env(PORT_VARIABLE, str(CONTROL_PORT))
        self.with_env(TOKEN_VARIABLE, self._token)
        for variable, value in self._security.environment().items():
            self.with_env(variable, value)
        # The default for commands that run inside the container.
        self.with_env("KAFKA_BOOTSTRAP_SERVERS", f"localhost:{NODES_PORT}")
        # The mapped ports of the listeners are known only once the container runs.
        wait = f"while [ ! -f {_FOLDER}/{_COMPLETE} ]; do sleep 0.05; done; . {_FOLDER}/{_SCRIPT}"
        self.with_command(["sh", "-c", wait])

    # -- start and end ------------------------------------------------------------------------------------------

    def start(self) -> OdradekContainer:
        """Start the container, and return when the broker serves clients."""
        super().start()
        try:
            self.get_wrapped_container().put_archive(_FOLDER, _archive(self._start_script()))
            LogMessageWaitStrategy(_STARTED).with_startup_timeout(round(START_S)).wait_until_ready(self)
        except Exception as error:
            log = b"".join(self.get_logs()).decode("utf-8", "replace")
            self.stop()
            raise BrokerFailed(
                f"the broker in the container did not start: {error}\n{log[-_LOG_CHARACTERS_MAX:]}"
            ) from error
        return self

    def stop(self, *args: Any, **options: Any) -> None:
        """Stop and remove the container, with its data."""
        if self._remote is not None:
            self._remote.client.retire("this container has been removed, and its rules with it")
            self._remote = None
        if self._certificates is not None:
            self._certificates.cleanup()
            self._certificates = None
        super().stop(*args, **options)

    def reset(self, *, new_cluster_id: bool = False) -> OdradekContainer:
        """Return the broker to the state after its start: only the topics of ``topics``, no groups, transactional ids,
        rules, clock advances or trace.

        The cluster keeps its id, unless ``new_cluster_id`` is True: clients then find another cluster at the same
        addresses.
        """
        self._control.reset(new_cluster_id=new_cluster_id)
        return self

    def _start_script(self) -> str:
        # The addresses advertised to clients outside the container do not work between the nodes.
        name = self._security.protocol
        settings = {
            "listeners": f"{name}://0.0.0.0:{KAFKA_PORT},NODES://127.0.0.1:{NODES_PORT}",
            "listener.security.protocol.map": f"{name}:{name},NODES:PLAINTEXT",
            "inter.broker.listener.name": "NODES",
        }
        for number, address in enumerate(self._addresses()):
            advertised = f"{name}://{address},NODES://127.0.0.1:{NODES_PORT + number}"
            settings[f"odradek.node.{number + 1}.advertised.listeners"] = advertised
        arguments = [*self._arguments]
        for setting, value in settings.items():
            arguments += ["--set", f"{setting}={value}"]
        return f"exec odradek-container {shlex.join(arguments)}\n"

    def _addresses(self) -> list[str]:
        host = self.get_container_host_ip()
        return [f"{host}:{self.get_exposed_port(port)}" for port in self._ports]

    def _authority(self) -> Authority:
        """The authority's files, copied out of the container on first use, and deleted with the container."""
        if self._certificates is None:
            chunks, _ = self.get_wrapped_container().get_archive(_TLS)
            copy = tempfile.TemporaryDirectory(prefix="odradek-tls-", ignore_cleanup_errors=True)
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as files:
                files.extractall(copy.name, filter="data")
            self._certificates = copy
        return Authority(Path(self._certificates.name) / PurePosixPath(_TLS).name)

    # -- addresses and control port -----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, running or not, for a client's ``bootstrap.servers``."""
        return ",".join(self._addresses())

    def get_bootstrap_server(self) -> str:
        """``bootstrap_servers``, under the name that ``KafkaContainer`` uses."""
        return self.bootstrap_servers

    @property
    def control_url(self) -> str:
        """The URL of the control port. Calls need ``control_token``."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(CONTROL_PORT)}"

    @property
    def control_token(self) -> str:
        """The bearer token for calls of the control port."""
        return self._token

    @property
    def _control(self) -> Remote:
        if self._remote is None:
            self._remote = Remote(ControlClient(self.control_url, self._token))
        return self._remote


def _archive(script: str) -> bytes:
    """A tar archive with the script, followed by the file that marks the script as complete."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as files:
        for name, content in ((_SCRIPT, script.encode()), (_COMPLETE, b"")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            files.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
