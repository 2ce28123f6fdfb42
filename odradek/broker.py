"""A broker process as a Python object.

with Broker(topics=["orders:4"]) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
    with broker.faults.add("EndTxn", nth=2, do="lose-answer") as rule:
        ...
    broker.clock.advance("7d")
    broker.kill()
    broker.restart()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from odradek.asynchronous import asynchronous
from odradek.control_client import ControlClient
from odradek.errors import HIDDEN_IN_TRACEBACKS
from odradek.handle import Handle
from odradek.process import BrokerProcess
from odradek.remote import TOKEN_VARIABLE, Remote
from odradek.security import FOLDER, Authority, Security
from odradek.snapshots import Snapshot
from odradek.words import Mechanism

__tracebackhide__ = HIDDEN_IN_TRACEBACKS


class Broker(Handle):
    """A broker in its own process, with its faults, clock, trace, transactions and nodes.

    ``topics`` are ``["orders:4"]`` or ``{"orders": 4}``. ``settings`` are those of Kafka and Odradek
    (docs/configuration.md). ``seed`` are records that a new data directory contains from the start: a file of JSON
    lines, or a list of ``{"topic": "orders", "value": "paid"}``, with optional ``key``, ``partition`` and ``aborted``.
    Without ``data_dir`` the data is temporary: it is deleted when the broker is closed. ``transaction_version`` is 0, 1
    or 2 (the default). ``features`` are levels of this and other features, such as ``{"group.version": 0}``. ``preview`` has
    the names of changes of later releases of Kafka that the broker applies, such as ``["KAFKA-15591"]``. ``start``, ``with``
    or ``async with`` starts the process. The methods raise ``OdradekError``.

    ``tls`` makes the broker serve TLS. True creates a certificate authority for its certificates; a path is the directory of
    an authority, which is created if it does not exist. ``users``, such as ``{"alice": "secret"}``, log in by SASL: by
    ``mechanism``, or by each of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. ``client_config`` returns the settings of a client:

    with Broker(tls=True, users={"alice": "secret"}) as broker:
        producer = Producer(broker.client_config("alice"))
    """

    def __init__(
        self,
        nodes: int = 1,
        topics: Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        transaction_version: int | None = None,
        *,
        seed: str | Path | Iterable[Mapping[str, object]] = (),
        tls: bool | str | Path = False,
        users: Mapping[str, str] | None = None,
        mechanism: Mechanism | None = None,
        preview: Iterable[str] = (),
        features: Mapping[str, int] | None = None,
        port: int | None = None,
        arguments: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(topics, Mapping):
            topics = [f"{name}:{partitions}" for name, partitions in topics.items()]
        arguments = tuple(arguments)
        self._security = Security.of(tls, users, mechanism, settings)
        self._tls_directory = None if isinstance(tls, bool) else Path(tls).absolute()
        more = [*arguments, *self._tls_arguments()]
        if nodes != 1:
            more += ["--nodes", str(nodes)]
        if transaction_version is not None:
            more += ["--feature", f"transaction.version={transaction_version}"]
        for name, level in (features or {}).items():
            more += ["--feature", f"{name}={level}"]
        preview = tuple(preview)
        for name in preview:
            more += ["--preview", name]
        self._fork_options: dict[str, Any] = {
            "nodes": nodes,
            "settings": settings,
            "transaction_version": transaction_version,
            "arguments": arguments,
            "environment": environment,
            "tls": tls,
            "users": users,
            "mechanism": mechanism,
            "preview": preview,
            "features": features,
        }
        self._directory = tempfile.TemporaryDirectory(prefix="odradek-", ignore_cleanup_errors=True)
        more += seed_arguments(seed, Path(self._directory.name))
        self.process = BrokerProcess(
            Path(self._directory.name),
            *more,
            topics=topics,
            settings=settings,
            environment={**(environment or {}), **self._security.environment()},
            data_dir=None if data_dir is None else Path(data_dir),
            port=port,
            control=True,
            is_temporary=True,
        )
        said = str((settings or {}).get("odradek.control.token", ""))
        self._token = (environment or {}).get(TOKEN_VARIABLE) or said or None
        self._remote: Remote | None = None

    # -- start and end ------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Start the process, and return when it serves clients."""
        self.process.start()
        return self

    def kill(self) -> None:
        """Kill the whole process with SIGKILL. The data directory is not touched."""
        self._forget()
        self.process.kill()

    def restart(self) -> Broker:
        """Start the process again on the same data and ports; stop a running process cleanly first.

        Rules, the trace and advances of the clock end with the old process.
        """
        self._forget()
        self.process.restart()
        return self

    def reset(self, *, new_cluster_id: bool = False) -> Broker:
        """Return the broker to the state after its start: only the topics of ``topics``, no groups, transactional ids,
        rules, clock advances or trace, and the credentials, ACLs and quotas of the start.

        Resets all connections first. Starts all nodes again, also those that were killed or stopped. The cluster keeps its
        id, unless ``new_cluster_id`` is True: clients then find another cluster at the same addresses.
        """
        if not self.process.is_running:
            self.restart()
        self._control.reset(new_cluster_id=new_cluster_id)
        return self

    restart_async = asynchronous(restart)
    reset_async = asynchronous(reset)

    def snapshot(self) -> Snapshot:
        """Snapshot the current state: ``Snapshot.restore`` returns the broker to it, ``Snapshot.fork`` starts another broker
        from it.

        with broker.snapshot() as snapshot:
            ...
            snapshot.restore()
        """
        return Snapshot(self._control.client, self._fork)

    def _fork(self, files: Path) -> Broker:
        """Return a broker that is not started yet, with a copy of ``files``, a snapshot's files, as data directory."""
        other = Broker(**self._fork_options)
        shutil.copytree(files, other.process.data_dir)
        return other

    def _tls_arguments(self) -> list[str]:
        if not self._security.tls:
            return []
        return ["--tls"] if self._tls_directory is None else ["--tls-directory", str(self._tls_directory)]

    def _authority(self) -> Authority:
        return Authority(self._tls_directory or self.process.data_dir.absolute() / FOLDER)

    def _forget(self) -> None:
        if self._remote is not None:
            self._remote.client.retire(
                "the broker process of this object has ended, and its rules with it: add them to the new process"
            )
            self._remote = None

    def close(self) -> None:
        """Stop the process, delete temporary data. Raises ``BrokerFailed`` if the broker's log contains a traceback."""
        try:
            self.process.close()
        finally:
            self._directory.cleanup()

    def __enter__(self) -> Broker:
        try:
            return self.start()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.close)

    # -- addresses and log --------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, running or not, for a client's ``bootstrap.servers``."""
        return self.process.bootstrap_servers

    @property
    def control_url(self) -> str:
        """The URL of the control port, for ``odradek`` commands (``--control``) and programs in any language."""
        return self.process.control_url

    @property
    def log(self) -> list[str]:
        """The lines of the broker's log."""
        return self.process.log

    @property
    def _control(self) -> Remote:
        if self._remote is None:
            self._remote = Remote(ControlClient(self.control_url, self._token))
        return self._remote


def seed_arguments(seed: str | Path | Iterable[Mapping[str, object]], directory: Path) -> list[str]:
    """The `odradek serve` options for a seed. A list is first written to a file in ``directory``."""
    if isinstance(seed, str | Path):
        return ["--seed", str(Path(seed).absolute())]
    lines = [json.dumps(dict(each)) for each in seed]
    if not lines:
        return []
    file = directory / "seed.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    return ["--seed", str(file)]
