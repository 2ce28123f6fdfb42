"""``odradek export``: copies a stopped broker's directory so that Apache Kafka can start on the copy.

The source is only locked and read. The copy is then opened as at a broker's start, and closed as by a clean stop. So it
needs no recovery, even after a crash of the source; every partition has its folder; and the metadata log ends with this
broker's unregistration, so that a Kafka that starts on the copy registers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import javaproperties

from broker.clock import SystemClock
from broker.logging import configure
from broker.metadata.features import (
    CIDR_HOSTS_FROM,
    DEAD_LETTERS_FROM,
    METADATA_VERSION,
    SHARE_VERSION,
    metadata_version,
)
from broker.metadata.files import LOG_DIRECTORY, META_PROPERTIES
from broker.metadata.image import Image
from broker.metadata.log import take_snapshot
from broker.metadata.replay import replay
from server.exchange.command_line import run
from server.exchange.copying import copy_directory
from server.exchange.stopped_directory import EXPECTED, HOST, node_id_of, opened
from storage.directory import LOCK, locked

SETTINGS: Final = "server.properties"
METADATA_VERSIONS: Final = {"4.3-IV0": 30, "4.4-IV0": 31, "4.4-IV1": 32, "4.4-IV2": 33}
"""Name -> level. These have the same records, except for UnregisterControllerRecord, which no snapshot has."""


class ExportError(Exception):
    """The directory cannot be exported. The message is for the user."""


def main(arguments: list[str]) -> int:
    """Execute the command line of the export; returns the exit code of the process."""
    return run(command, "odradek export", arguments)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a stopped broker. It is not changed.",
)
@click.option(
    "--port",
    default=9092,
    show_default=True,
    type=click.IntRange(1, 65535),
    help=f"Port on {HOST} for Kafka to listen on for clients.",
)
@click.option(
    "--controller-port",
    default=9093,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port for Kafka's controller to listen on.",
)
@click.option(
    "--metadata-version",
    "metadata_level",
    type=click.Choice([*METADATA_VERSIONS]),
    help="Lower the metadata.version, for an earlier release of Kafka.  [default: that of the directory]",
)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
def command(
    data_dir: Path, port: int, controller_port: int, metadata_level: str | None, target: Path
) -> None:
    """Copy a stopped broker's data directory to DIR so that Apache Kafka 4.4.0 starts on it.

    DIR must be empty or not exist. The copy contains the logs, the cluster metadata, and a server.properties for a node
    with the roles broker and controller. Apache Kafka 4.3 starts on it with --metadata-version 4.3-IV0.
    """
    level = None if metadata_level is None else METADATA_VERSIONS[metadata_level]
    try:
        topics, partitions = export(data_dir.resolve(), target.resolve(), port, controller_port, level)
    except ExportError as error:
        raise click.ClickException(str(error)) from None
    settings = target.resolve() / SETTINGS
    click.echo(f"{partitions} partitions of {topics} topics are in {target}. To start Kafka on them:")
    click.echo(f"\n    bin/kafka-server-start.sh {shlex.quote(str(settings))}\n")


def export(
    source: Path, target: Path, port: int, controller_port: int, level: int | None = None
) -> tuple[int, int]:
    """Write the export; returns (number of topics, number of partitions). An error leaves ``target`` as it was before.

    ``level``: the metadata.version of the copy; None keeps that of ``source``.
    """
    if nodes := sorted(source.glob(f"node-*/{META_PROPERTIES}")):
        raise ExportError(
            f"{source} contains a cluster of several nodes: give the directory of one node, such as {nodes[0].parent}."
        )
    if not (source / META_PROPERTIES).exists():
        raise ExportError(f"{source} has no {META_PROPERTIES}: it is not the directory of a broker.")
    if target == source or source in target.parents:
        raise ExportError(f"{target} is inside of {source}: give a directory outside of it.")
    with _emptied_on_failure(target):
        try:
            with locked(source):
                copy_directory(source, target)
            counts = asyncio.run(_settle(target, port))
            if level is not None:
                lower_metadata_version(target, level)
                asyncio.run(_settle(target, port))
            write_settings(target, port, controller_port)
        except EXPECTED as error:
            raise ExportError(str(error)) from error
    # One sync for everything: a call for each file of a large directory would take minutes.
    os.sync()
    return counts


@contextlib.contextmanager
def _emptied_on_failure(target: Path) -> Iterator[None]:
    existed = target.exists()
    if existed and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target} is not empty: give an empty directory, or one that does not exist.")
    try:
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        if existed:
            target.mkdir(exist_ok=True)
        raise


async def _settle(target: Path, port: int) -> tuple[int, int]:
    """Open the copy and close it cleanly; returns (number of topics, number of partitions)."""
    async with opened(target, port) as at_rest:
        topics = at_rest.metadata.topics
        counts = len(topics), sum(len(topic.partitions) for topic in topics.values())
    (target / LOCK).unlink()
    return counts


def lower_metadata_version(target: Path, level: int) -> None:
    """Replace the metadata log of a closed directory by a snapshot with this metadata.version.

    Kafka itself has no such downgrade. The records have not changed between the levels in `METADATA_VERSIONS`.
    Raises `ExportError` for another level, and for an ACL that the level does not allow.
    """
    image, folder = Image(), target / LOG_DIRECTORY
    replayed = replay(folder, image)
    current = metadata_version(image.features)
    if not min(METADATA_VERSIONS.values()) <= level <= current:
        raise ExportError(f"The metadata.version of the directory is {current}, and cannot become {level}.")
    if level < CIDR_HOSTS_FROM and any("/" in acl.host for acl in image.acls.values()):
        raise ExportError("An ACL has a network (CIDR) as its host, which needs metadata.version 4.4-IV1.")
    image.features[METADATA_VERSION] = level
    if level < DEAD_LETTERS_FROM and image.features.get(SHARE_VERSION, 0) > 1:
        image.features[SHARE_VERSION] = 1  # the highest that Kafka 4.3 supports
    take_snapshot(folder, image, replayed, SystemClock().now_ms())


def write_settings(target: Path, port: int, controller_port: int) -> None:
    """Write a ``server.properties`` for one node with the roles broker and controller."""
    node_id = node_id_of(target)
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
    """A value escaped for Java's properties files. Colons and equals signs need no escape in a value."""
    return javaproperties.escape(value).replace("\\:", ":").replace("\\=", "=")


def main_of_a_process(arguments: list[str]) -> int:
    """Entry point of a process that only exports. Its log goes to standard error."""
    configure("auto", "warning", sys.stderr)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(main_of_a_process(sys.argv[1:]))
