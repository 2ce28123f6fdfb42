"""``odradek import``: copies partition folders of a real cluster into a stopped broker's directory.

A folder has only the name of its partition and the id of its topic. So the topic is created with that id, one replica, and
settings under which nothing of the copy is deleted. Indexes and producer state are rebuilt from the log, because a folder
may have been copied while its broker wrote to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from broker.logging import configure
from broker.metadata import ApiError, MorePartitions, NewTopic
from broker.metadata.topics import CLUSTER_METADATA, is_internal
from protocol.slotted import slotted
from server.exchange.command_line import run
from server.exchange.copying import copy_file
from server.exchange.stopped_directory import EXPECTED, StoppedDirectory, opened
from storage.checkpoints import parse_rows, read_partition_metadata

EPOCHS: Final = "leader-epoch-checkpoint"
# Old records must not be deleted, since they are what users want to examine.
KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class ImportRefused(Exception):
    """These folders cannot be imported. The message is for the user."""


@slotted(frozen=True)
class Folder:
    """A partition directory copied from another cluster, and the properties of the partition in its files."""

    path: Path
    topic: str
    index: int
    topic_id: UUID | None
    leader_epoch: int
    """The latest leader epoch of the folder's log, -1 if there is none."""


def main(arguments: list[str]) -> int:
    """Execute the command line of the import; returns the exit code of the process."""
    return run(command, "odradek import", arguments)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of a stopped broker; created if it does not exist.",
)
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="DIRECTORY...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
def command(data_dir: Path, folders: tuple[Path, ...]) -> None:
    """Import partition directories that you copied from another cluster, such as orders-0 and orders-3.

    The given directories are not changed. The topics keep their names and ids; partitions that you do not import are empty.
    """
    try:
        taken = [look_at(path.resolve()) for path in folders]
        asyncio.run(take(data_dir.resolve(), taken))
    except (*EXPECTED, ImportRefused) as error:
        raise click.ClickException(str(error)) from None
    for folder in taken:
        click.echo(f"{folder.topic}-{folder.index} is in {data_dir}")


def look_at(path: Path) -> Folder:
    """Read the properties of a partition directory. Raises ``ImportRefused`` if the directory cannot be imported."""
    topic, _, index = path.name.rpartition("-")
    if not (topic and index.isascii() and index.isdecimal()):
        raise ImportRefused(f"{path} does not have the name of a partition, such as orders-0.")
    if is_internal(topic) or topic == CLUSTER_METADATA:
        raise ImportRefused(
            f"{path} is a partition of an internal topic, which is valid only in its own cluster: use kafka-dump-log.sh to "
            "see its content."
        )
    if not any(path.glob("*.log")):
        raise ImportRefused(f"{path} contains no log.")
    epochs = [int(epoch) for epoch, _ in parse_rows(path / EPOCHS, 2)]
    return Folder(path, topic, int(index), read_partition_metadata(path), max(epochs, default=-1))


async def take(data_dir: Path, folders: Sequence[Folder]) -> None:
    """Copy the folders into the data directory, and open each copy. If one cannot be opened, all copies are removed."""
    with contextlib.ExitStack() as undo:
        async with opened(data_dir) as at_rest:
            for folder in folders:
                await _make_room(at_rest, folder, folders)
                _copy(folder, at_rest.replicas.directory.partition_path(folder.topic, folder.index), undo)
                partition = at_rest.replicas.get(folder.topic, folder.index)
                if partition is None or partition.offline is not None:
                    raise ImportRefused(f"{folder.path} cannot be read: {partition and partition.offline}")
        undo.pop_all()


async def _make_room(at_rest: StoppedDirectory, folder: Folder, folders: Sequence[Folder]) -> None:
    """Create the folder's partition, which must have no records, with a leader epoch above those of the folder's log."""
    metadata = at_rest.metadata
    topic = metadata.topic(folder.topic)
    count = 1 + max(each.index for each in folders if each.topic == folder.topic)
    if topic is None:
        new = NewTopic(folder.topic, count, 1, configs=KEPT_FOR_EVER, topic_id=folder.topic_id)
        [result] = await metadata.replication_control.create_topics([new])
        if isinstance(result, ApiError):
            raise ImportRefused(f"{folder.path}: {result.message}")
    elif folder.topic_id not in (None, topic.topic_id):
        raise ImportRefused(
            f"{folder.path}: this broker has a topic {folder.topic} with another topic id. Delete that topic first."
        )
    elif len(topic.partitions) < count:
        [refused] = await metadata.replication_control.create_partitions(
            [MorePartitions(folder.topic, count)]
        )
        if refused is not None:
            raise ImportRefused(f"{folder.path}: {refused.message}")
    present = at_rest.replicas.directory.partition_path(folder.topic, folder.index)
    if any(path.stat().st_size for path in present.glob("*.log")):
        raise ImportRefused(f"{present} has records already: import only into partitions without records.")
    await metadata.replication_control.begin_leader_epoch(folder.topic, folder.index, folder.leader_epoch + 1)


def _copy(folder: Folder, target: Path, undo: contextlib.ExitStack) -> None:
    """Copy the log and its leader epochs, but no indexes, so that the whole log is checked when it is opened."""
    shutil.rmtree(target, ignore_errors=True)
    undo.callback(shutil.rmtree, target, ignore_errors=True)
    target.mkdir()
    for source in _kept(folder.path):
        copy_file(source, target / source.name)


def _kept(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.glob("*.log") if path.stem.isdecimal())
    if (folder / EPOCHS).exists():
        yield folder / EPOCHS


def main_of_a_process(arguments: list[str]) -> int:
    """Entry point of a process that only imports. Its log goes to standard error."""
    configure("auto", "warning", sys.stderr)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(main_of_a_process(sys.argv[1:]))
