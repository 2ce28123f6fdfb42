"""The settings of a start of the broker: the configuration of each node, topics, features, the control port."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from broker.config.config import BrokerConfig
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.config.sasl_users import User


@slotted(frozen=True)
class TopicSpec:
    """A topic to create at the start, if it does not exist."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    replication_factor: int = -1  # default.replication.factor


@slotted(frozen=True)
class SeedRecord:
    """One record in the file of ``--seed``."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """Number of the partition; None to choose it by the key, or round-robin for records without a key."""
    aborted: bool = False


@slotted(frozen=True)
class ControlPort:
    """Address of the control port. With port 0 the operating system chooses a port."""

    host: str
    port: int


@slotted(frozen=True)
class Settings:
    """All settings of a start of the broker."""

    nodes: tuple[BrokerConfig, ...]
    topics: tuple[TopicSpec, ...] = ()
    features: Mapping[str, int] | None = None  # requested levels; the defaults for missing ones
    warnings: tuple[str, ...] = ()  # to be logged once the log is set up
    control: ControlPort | None = None
    faults: tuple[str, ...] = ()  # fault rules that are installed at the start, as text
    ends_with_stdin: bool = False  # stop when the program that started the broker closes its stdin
    users: tuple[User, ...] = ()  # users of --sasl with SCRAM, whose credentials are written to the metadata
    authority: Path | None = None  # of --tls: the directory with its certificates
    seed: tuple[SeedRecord, ...] = ()  # written into a new data directory

    @property
    def config(self) -> BrokerConfig:
        """Configuration of the first node, which also has the settings that do not concern a single node."""
        return self.nodes[0]

    @property
    def uses_tls(self) -> bool:
        """Whether a listener or the control port uses TLS."""
        control_has = self.control is not None and self.config.get("odradek.control.tls.certificate")
        return bool(control_has) or any(each.uses_tls for each in self.nodes)

    @property
    def data_dir(self) -> Path | None:
        """The log directory; None for a temporary directory that is removed when the process ends."""
        return self.config.log_dir
