"""``python -m broker.export``: a copy of a stopped broker's directory that Apache Kafka starts on.

The source is only locked and read. The copy is then opened as a broker's start does it and closed as by a clean stop, so
that it needs no recovery whatever way the source came to its end, every partition has its folder, and the metadata log
ends with this broker's leaving: a Kafka that starts on it registers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import click
import javaproperties

from broker.clock import SystemClock
from broker.config import BrokerConfig, broker_config
from broker.logging import configure
from broker.metadata import ClusterMetadata, Endpoint
from broker.metadata.files import META_PROPERTIES, WrongDirectory, parse_properties
from broker.metadata.framing import CorruptMetadata
from broker.replicas import Replicas
from storage.directory import DELETION, LOCK, DirectoryInUse, LogDirectory, locked
from storage.files import StorageError

HOST: Final = "127.0.0.1"
SETTINGS: Final = "server.properties"
_COPY_BYTES: Final = 1 << 24

# A file system that cannot share or copy a range by itself says one of these; then the bytes go through this process.
_CANNOT_COPY_RANGES: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class ExportError(Exception):
    """The directory cannot be exported; the text is a sentence for whoever asked."""


def main(arguments: list[str]) -> int:
    """Export as the command line says; the exit code of the process."""
    try:
        command.main(arguments, prog_name="odradek export", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of a broker that is not running. It stays as it is.",
)
@click.option(
    "--port",
    default=9092,
    show_default=True,
    type=click.IntRange(1, 65535),
    help=f"Where Kafka shall listen for clients, on {HOST}.",
)
@click.option(
    "--controller-port",
    default=9093,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Where its controller shall listen.",
)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
def command(data_dir: Path, port: int, controller_port: int, target: Path) -> None:
    """Copy a stopped broker's directory to DIR, ready for Apache Kafka 4.3.1 to start on.

    DIR must not exist, or be empty. It gets the logs, the cluster's metadata, and a server.properties for a node that is
    broker and controller in one.
    """
    configure("auto", "warning", sys.stderr)
    try:
        topics, partitions = export(data_dir.resolve(), target.resolve(), port, controller_port)
    except ExportError as error:
        raise click.ClickException(str(error)) from None
    settings = target.resolve() / SETTINGS
    click.echo(f"{partitions} partitions of {topics} topics are in {target}. To start Kafka on them:")
    click.echo(f"\n    bin/kafka-server-start.sh {shlex.quote(str(settings))}\n")


def export(source: Path, target: Path, port: int, controller_port: int) -> tuple[int, int]:
    """Write the export; how many topics and partitions it has. What fails leaves ``target`` as empty as it was."""
    if not (source / META_PROPERTIES).exists():
        raise ExportError(f"{source} has no {META_PROPERTIES}: it is not the directory of a broker.")
    if target == source or source in target.parents:
        raise ExportError(f"{target} lies inside of {source}: give a directory of its own.")
    with _emptied_on_failure(target):
        try:
            with locked(source):
                copy_directory(source, target)
            config = broker_config(
                {
                    "log.dirs": str(target),
                    "node.id": _node_id(target),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                }
            )
            counts = asyncio.run(_settle(config, target))
            write_settings(target, config.node_id, port, controller_port)
        except (CorruptMetadata, DirectoryInUse, OSError, StorageError, WrongDirectory) as error:
            raise ExportError(str(error)) from error
    # All at once: a call for each file of a large directory would take minutes.
    os.sync()
    return counts


@contextlib.contextmanager
def _emptied_on_failure(target: Path) -> Iterator[None]:
    existed = target.exists()
    if existed and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target} is not empty: give a directory that is, or that does not exist.")
    try:
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        if existed:
            target.mkdir(exist_ok=True)
        raise


def _node_id(directory: Path) -> str:
    properties = parse_properties((directory / META_PROPERTIES).read_text())
    if "node.id" not in properties:
        raise ExportError(f"{directory / META_PROPERTIES} does not name the node.id.")
    return properties["node.id"]


# ---- copying


def copy_directory(source: Path, target: Path) -> None:
    """Copy a log directory, but for its lock and the folders of deleted topics."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and not entry.name.endswith(DELETION):
            copy_directory(entry, target / entry.name)
        elif entry.is_file() and entry.name != LOCK:
            copy_file(entry, target / entry.name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times, and its holes: Kafka's indexes are ten megabytes each, most of them never written."""
    with source.open("rb") as reading, target.open("xb") as writing:
        size = os.fstat(reading.fileno()).st_size
        for begin, end in _extents(reading.fileno(), size):
            _copy_range(reading.fileno(), writing.fileno(), begin, end)
        os.ftruncate(writing.fileno(), size)
    shutil.copystat(source, target)


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    while position < size:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(fd, position, os.SEEK_HOLE)
        yield position, end
        position = end


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    copy: Callable[[int, int, int, int], int] = _by_the_system if hasattr(os, "copy_file_range") else _by_hand
    while begin < end:
        try:
            copied = copy(source, target, begin, min(end - begin, _COPY_BYTES))
        except OSError as error:
            if copy is _by_hand or error.errno not in _CANNOT_COPY_RANGES:
                raise
            copy = _by_hand
            continue
        if copied == 0:
            raise OSError(errno.EIO, "a file has become shorter while it was copied")
        begin += copied


def _by_the_system(source: int, target: int, position: int, length: int) -> int:
    return os.copy_file_range(source, target, length, position, position)


def _by_hand(source: int, target: int, position: int, length: int) -> int:
    return os.pwrite(target, os.pread(source, length, position), position)


# ---- what makes it Kafka's


async def _settle(config: BrokerConfig, target: Path) -> tuple[int, int]:
    """Open the copy and close it cleanly; (topics, partitions) that it has."""
    clock, random = SystemClock(), Random()
    directory = LogDirectory(target)
    metadata = ClusterMetadata.open(
        target,
        config=config,
        clock=clock,
        random=random,
        endpoints=[Endpoint(each.name, each.host, each.port) for each in config.listeners],
    )
    replicas = Replicas(config.node_id, directory, config, clock, metadata, random)
    replicas.recover()
    await replicas.close(clean=True)
    for partition in replicas.opened():
        if partition.offline is not None:
            raise ExportError(f"{partition.topic}-{partition.index} cannot be exported: {partition.offline}")
    topics = metadata.topics
    await metadata.leave()
    await metadata.close()
    directory.close(clean=True, broker_epoch=metadata.brokers[config.node_id].epoch)
    (target / LOCK).unlink()
    return len(topics), sum(len(topic.partitions) for topic in topics.values())


def write_settings(target: Path, node_id: int, port: int, controller_port: int) -> None:
    """A ``server.properties`` for one node that is broker and controller."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": f"{node_id}@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(target),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    lines = [f"{name}={_escaped(value)}\n" for name, value in settings.items()]
    (target / SETTINGS).write_text("".join(lines), "ascii")


def _escaped(value: str) -> str:
    """A value as Java's properties files want it; in a value, colons and equals signs are no more than that."""
    return javaproperties.escape(value).replace("\\:", ":").replace("\\=", "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
