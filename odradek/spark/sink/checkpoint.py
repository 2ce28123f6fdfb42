"""Read from the query's checkpoint which file of ``offsets`` a batch has, and which sink has planned its batches before.

In the cluster, a decision record and transactional ids expire after seven days without a batch. The checkpoint does not
expire, and it moves with the query. So the driver writes the file ``odradek-sink.json``, which names the sink, into the
checkpoint. This only works with checkpoints in a directory that this process can read (``/data/…``, ``file:/data/…``);
otherwise the sink relies on the cluster alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from odradek.spark.sink.names import SinkPlace

log = logging.getLogger(__name__)

MARK = "odradek-sink.json"
_OFFSETS = "offsets"
_COMMITS = "commits"


class BatchOffsets(NamedTuple):
    """The content of a file in the checkpoint's ``offsets``: its batch, and a hash.

    The hash covers the offsets of each source, the watermark, and the time of the batch.
    """

    batch: int
    digest: int


class Checkpoint:
    """The checkpoint at ``location``, the value of Spark's option.

    If the checkpoint cannot be read, all methods return None.
    """

    def __init__(self, location: str | None) -> None:
        self.directory = _local(location) if location else None

    def _readable(self) -> Path | None:
        """The checkpoint's directory; None if it is not on this machine.

        A path without a scheme may be in HDFS. A local directory with the same path then has none of Spark's files.
        """
        return self.directory if self.directory and (self.directory / _OFFSETS).is_dir() else None

    def offsets(self, batch: int) -> BatchOffsets | None:
        """The ``offsets`` file of a batch; None if it cannot be read."""
        directory = self._readable()
        if directory is None:
            return None
        try:
            content = (directory / _OFFSETS / str(batch)).read_bytes()
        except OSError:
            return None
        return BatchOffsets(batch, int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big"))

    def last_offsets(self) -> BatchOffsets | None:
        """The newest ``offsets`` file. Spark writes it before it plans the batch, so it belongs to the planned batch."""
        directory = self._readable()
        if directory is None:
            return None
        try:
            last = _last(directory / _OFFSETS)
        except OSError:
            return None
        return self.offsets(last) if last >= 0 else None

    def has_unwritten_batch(self) -> bool | None:
        """Whether Spark has recorded a batch in ``offsets`` that is not in ``commits`` yet; None if this cannot be read.

        False while a batch is planned is the only sign of a continuous trigger: Spark then plans once, before the first
        epoch, and does not pass the trigger of a query to any Python process.
        """
        directory = self._readable()
        if directory is None:
            return None
        try:
            return _last(directory / _OFFSETS) > _last(directory / _COMMITS)
        except OSError:
            return None

    def mark(self) -> SinkPlace | None:
        """The sink that ``odradek-sink.json`` names, which has planned a batch before; None if unreadable."""
        directory = self._readable()
        if directory is None:
            return None
        try:
            found = json.loads((directory / MARK).read_text("utf-8"))
            return SinkPlace(found["name"], found["decisionTopic"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("the file %s of the checkpoint cannot be read: %s", MARK, error)
            return None

    def leave_mark(self, mark: SinkPlace) -> None:
        """Write the sink's name and decision topic to ``odradek-sink.json``. A failure is only logged."""
        directory = self._readable()
        if directory is None:
            return
        # Two drivers may write at the same time.
        new = directory / f".{MARK}.{os.getpid()}"
        try:
            new.write_text(json.dumps({"name": mark.name, "decisionTopic": mark.topic}) + "\n", "utf-8")
            new.replace(directory / MARK)
        except OSError as error:
            log.warning("the file %s cannot be written to the checkpoint: %s", MARK, error)


def _last(directory: Path) -> int:
    """The highest number that is the name of a file in ``directory``, -1 if there is none."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return -1
    return max((int(each) for each in names if each.isdecimal()), default=-1)


def _local(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    # Hadoop's Path does not parse a location without a scheme, and does not percent-decode the path of a URI either.
    return Path(parts.path if parts.scheme else location)
