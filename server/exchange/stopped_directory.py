"""Opens a stopped broker's log directory as at a start, without clients, and closes it as by a clean stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from broker.clock import SystemClock
from broker.config import DEFAULT_PORT, broker_config
from broker.metadata import ClusterMetadata, Endpoint
from broker.metadata.files import META_PROPERTIES, WrongDirectory, parse_properties
from broker.metadata.framing import CorruptMetadata
from broker.replicas.manager import ReplicaManager
from protocol.slotted import slotted
from storage.directory import DirectoryInUse, LogDirectory
from storage.files import StorageError

HOST: Final = "127.0.0.1"
EXPECTED: Final = (CorruptMetadata, DirectoryInUse, OSError, StorageError, WrongDirectory)
"""Errors of opening a directory. The message of each is for the user."""


@slotted(frozen=True)
class StoppedDirectory:
    """A stopped broker's log directory while `opened` has it open: its cluster metadata and its replicas."""

    metadata: ClusterMetadata
    replicas: ReplicaManager


def node_id_of(data_dir: Path) -> int | None:
    """Node id of the directory; None if it was never formatted."""
    path = data_dir / META_PROPERTIES
    if not path.exists():
        return None
    text = parse_properties(path.read_text()).get("node.id", "")
    if not text.isdecimal():
        raise WrongDirectory(f"{path} has no node.id: this is not a formatted log directory")
    return int(text)


@asynccontextmanager
async def opened(data_dir: Path, port: int = DEFAULT_PORT) -> AsyncIterator[StoppedDirectory]:
    """Context manager: open the directory, recover its logs, and create all partitions' folders.

    ``port`` is the port of the broker, Odradek or Kafka, that starts on the directory later: it is registered in the
    metadata log. After an error in the body, the directory is as after a crash.
    """
    node_id = node_id_of(data_dir)
    settings = {"log.dirs": str(data_dir), "listeners": f"PLAINTEXT://{HOST}:{port}"}
    config = broker_config(settings if node_id is None else settings | {"node.id": str(node_id)})
    clock, random = SystemClock(), Random()
    directory = LogDirectory(data_dir)
    metadata: ClusterMetadata | None = None
    try:
        metadata = ClusterMetadata.open(
            data_dir,
            config=config,
            clock=clock,
            random=random,
            endpoints=[Endpoint(each.name, each.host, each.port) for each in config.listeners],
            previous_epoch=directory.previous_epoch,
        )
        replicas = ReplicaManager(config.node_id, directory, config, clock, metadata, random)
        replicas.recover()
        for key in replicas.unopened():
            replicas.open_existing(*key)
        yield StoppedDirectory(metadata, replicas)
        closed = await replicas.close(clean=True)
        _check_readable(replicas)
        if not closed:
            raise StorageError(
                directory.path,
                "the directory could not be closed cleanly, because some files could not be written",
            )
        await metadata.leave()
        await metadata.close()
    except BaseException:
        if metadata is not None:
            metadata.abandon()
        directory.close(clean=False)
        raise
    directory.close(clean=True, broker_epoch=metadata.brokers[config.node_id].epoch)


def _check_readable(replicas: ReplicaManager) -> None:
    for partition in replicas.opened():
        if partition.offline is not None:
            raise StorageError(partition.name, partition.offline)
