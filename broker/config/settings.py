"""What a start of the broker needs to know: the configuration of each node, topics, features, the control port."""

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
    """A topic to create at start, unless it is there."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    replication_factor: int = -1  # default.replication.factor


@slotted(frozen=True)
class SeedRecord:
    """A record of --seed."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """None: by the key, else in turn."""
    aborted: bool = False


@slotted(frozen=True)
class ControlPort:
    """Where the control port listens; port 0 picks a free one."""

    host: str
    port: int


@slotted(frozen=True)
class Settings:
    """Everything a start of the broker needs to know."""

    nodes: tuple[BrokerConfig, ...]
    topics: tuple[TopicSpec, ...] = ()
    features: Mapping[str, int] | None = None  # chosen levels; None and missing ones are the defaults
    warnings: tuple[str, ...] = ()  # to be logged once the log is set up
    control: ControlPort | None = None
    faults: tuple[str, ...] = ()  # rules that hold from the start on, as text
    ends_with_stdin: bool = False  # the program that started it holds the other end
    users: tuple[User, ...] = ()  # of --sasl, those that log in by SCRAM: the metadata has their credentials
    authority: Path | None = None  # of --tls: the directory with its certificates
    seed: tuple[SeedRecord, ...] = ()  # written into a new data directory

    @property
    def config(self) -> BrokerConfig:
        """Of the first node; what is not about one node holds for the whole broker."""
        return self.nodes[0]

    @property
    def uses_tls(self) -> bool:
        """Does any listener, or the control port?"""
        control_has = self.control is not None and self.config.get("odradek.control.tls.certificate")
        return bool(control_has) or any(each.uses_tls for each in self.nodes)

    @property
    def data_dir(self) -> Path | None:
        """None is a temporary directory that goes with the process."""
        return self.config.log_dir
