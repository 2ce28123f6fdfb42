"""The common base of `odradek.Broker` and `odradek.testcontainers.OdradekContainer`: faults, clock, trace and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.assertions import Assertions
from odradek.control_client import ControlClient
from odradek.errors import HIDDEN_IN_TRACEBACKS, OdradekError
from odradek.remote import (
    Clock,
    Faults,
    Loss,
    Nodes,
    Partition,
    Remote,
    Timeline,
    Trace,
    Transactions,
)
from odradek.security import Authority, Client, Security, client_config
from odradek.snapshots import Snapshot
from odradek.words import Library, Mechanism

__tracebackhide__ = HIDDEN_IN_TRACEBACKS


class Handle(Assertions):
    """A broker's faults, clock, trace, transactions and nodes, through its control port, and its clients' settings."""

    _security: Security

    if not TYPE_CHECKING:  # otherwise type checkers accept any attribute name

        def __getattr__(self, name: str) -> Any:
            __tracebackhide__ = True
            from odradek import __all__ as names

            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in names:
                text += (
                    f": the fixture odradek shadows the module of that name. Write `from odradek import {name}`, "
                    "or use the same fixture by its other name, odradek_clean"
                )
            raise AttributeError(text, name=name, obj=self)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, running or not, for a client's ``bootstrap.servers``."""
        raise NotImplementedError

    @property
    def authority(self) -> Authority:
        """The files of the broker's certificate authority. Raises ``OdradekError`` for a broker without ``tls``."""
        if not self._security.tls:
            raise OdradekError("this broker has no certificates: start it with tls=True")
        return self._authority()

    def client_config(
        self,
        user: str | None = None,
        password: str | None = None,
        *,
        library: Library = "librdkafka",
        mechanism: Mechanism | None = None,
    ) -> dict[str, Any]:
        """The settings with which a client connects: addresses, protocol, certificates, credentials.

        producer = Producer({**broker.client_config("alice"), "transactional.id": "payments"})

        ``library`` selects the format: "librdkafka" (confluent-kafka), "java", "aiokafka" or "kafka-python". The default
        ``user`` is the broker's first user. ``password`` is required for a user that was added, or whose password was
        changed, after the start.
        """
        security = self._security
        authority = self._authority() if security.tls else None
        client = Client(
            self.bootstrap_servers,
            security.protocol,
            ca=None if authority is None else authority.ca,
            login=security.login(user, password, mechanism),
            authority=authority if security.asks_certificate else None,
        )
        return client_config(library, client)

    def _authority(self) -> Authority:
        raise NotImplementedError

    @property
    def cluster_id(self) -> str:
        """The cluster id, which clients see in their metadata too."""
        return self._control.cluster_id

    @property
    def faults(self) -> Faults:
        """The fault rules."""
        return self._control.faults

    @property
    def clock(self) -> Clock:
        """The clock, which can be advanced."""
        return self._control.clock

    @property
    def trace(self) -> Trace:
        """The trace: every request and its response."""
        return self._control.trace

    @property
    def transactions(self) -> Transactions:
        """The transactions of all coordinators."""
        return self._control.transactions

    @property
    def nodes(self) -> Nodes:
        """The nodes of the cluster, which can be killed, stopped and started."""
        return self._control.nodes

    def timeline(self, transactional_id: str) -> Timeline:
        """The timeline of a transactional id across all nodes."""
        return self._control.timeline(transactional_id)

    def share_timeline(
        self, group: str, topic: str | None = None, partition: int | None = None, offset: int | None = None
    ) -> Timeline:
        """The timeline of a share group, of a topic partition in it, or of the record at an offset."""
        return self._control.share_timeline(group, topic, partition, offset)

    def partitions(self, topic: str | None = None, *, internal: bool = False) -> list[Partition]:
        """The partitions with their leaders, leader epochs, ISRs and log end offsets."""
        return self._control.partitions(topic, internal=internal)

    def losses(self) -> list[Loss]:
        """Committed, perhaps committed or acks=1 records that a replica had and the leader's log no longer contains."""
        return self._control.losses()

    def move_leader(self, topic: str, partition: int, *, to: int) -> Partition:
        """Move the leadership of a partition to another replica in the ISR."""
        return self._control.move_leader(topic, partition, to=to)

    def move_coordinator(
        self, *, transactional_id: str | None = None, group: str | None = None, to: int
    ) -> Partition:
        """Move a transactional id or a group to another coordinator, with all ids or groups of the same partition."""
        return self._control.move_coordinator(transactional_id=transactional_id, group=group, to=to)

    def snapshot(self) -> Snapshot:
        """Snapshot the current state of the broker; ``Snapshot.restore`` returns the broker to it."""
        return self._control.snapshot()

    def _control_client(self) -> ControlClient:
        return self._control.client

    @property
    def _control(self) -> Remote:
        raise NotImplementedError
