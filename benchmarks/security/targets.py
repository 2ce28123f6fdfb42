"""The brokers of the comparison. Each has three listeners named after their protocols: PLAINTEXT, SSL and SASL_PLAINTEXT."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.targets import KAFKA_SETTINGS, Kafka
from benchmarks.targets import HOST, Odradek, Running, Target, TargetFailed
from odradek._server import command

USER: Final = "alice"
PASSWORD: Final = "alice-secret"
LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
_MODULES: Final = "org.apache.kafka.common.security"


def secured_settings(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """The settings that Odradek and Kafka have in common. Kafka also needs a listener for its controller."""
    sasl = "listener.name.sasl_plaintext."
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        **KAFKA_SETTINGS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        f"{sasl}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{sasl}plain.sasl.jaas.config": f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{sasl}scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
    }


class Secured(Target):
    """A broker with a certificate and one port per listener."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ports: dict[str, int] = {}

    def prepare(self, port: int, data: Path) -> None:
        self.ports = dict(zip(LISTENERS, _ports_from(port, len(LISTENERS)), strict=True))
        super().prepare(port, data)

    @contextmanager
    def running(self, directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Running]:
        from benchmarks.security.logins import add_user

        with super().running(directory, settings) as running:
            add_user(running.connect)
            yield running


class SecuredOdradek(Secured, Odradek):
    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        given = {**secured_settings(self.folder, self.ports), **settings}
        options = [option for name, value in given.items() for option in ("--set", f"{name}={value}")]
        return command("serve", "--data-dir", str(data), *options)


class SecuredKafka(Secured, Kafka):
    def properties(self) -> Mapping[str, str]:
        from tests.support.raw import free_port

        controller = free_port()
        own = secured_settings(self.folder, self.ports)
        return {
            **own,
            "listeners": f"{own['listeners']},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": own["listeners"],
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}"
                for name in (*LISTENERS, "CONTROLLER")
            ),
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }


def secured(folder: Path) -> dict[str, Secured]:
    """The brokers by name. Writes the certificate to the folder."""
    from datetime import UTC, datetime

    from broker.security.tls.authority import Authority, local_hosts
    from broker.security.tls.directory import write_directory

    authority = Authority.create(datetime.now(UTC))
    server, client = authority.issue("localhost", local_hosts()), authority.issue(USER, client=True)
    write_directory(folder, authority, server, client, PASSWORD)
    return {each.name: each(folder) for each in (SecuredOdradek, SecuredKafka)}


def _ports_from(first: int, count: int) -> list[int]:
    """The port ``first``, which is free, and the next free ports."""
    found = [first]
    for port in range(first + 1, 32_000):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
    raise TargetFailed("no free port")
