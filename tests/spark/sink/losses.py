"""A Spark query whose driver is killed, which loses a file, a group or its name, and which is started again."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.sink.names import query_group
from odradek.spark.testing.driver import kill_driver_after, run_driver
from odradek.spark.testing.kafka import Kafka, Record
from odradek.spark.wire import ClientSettings, Cluster
from tests.spark.archive import java_options
from tests.spark.sink.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remove(directory: Path, *batches: int) -> None:
    """Remove files of ``offsets`` or ``commits``, with their checksums."""
    for batch in batches:
        (directory / str(batch)).unlink()
        (directory / f".{batch}.crc").unlink(missing_ok=True)


def batches(directory: Path) -> list[int]:
    """The batches that have a file in ``offsets`` or ``commits``."""
    return sorted(int(each.name) for each in directory.iterdir() if each.name.isdecimal())


class Losses:
    """One query with its topics. Each row of the source has a unique value."""

    def __init__(self, spark: SparkSession, kafka: Kafka, directory: Path, partitions: int = 1) -> None:
        self.spark = spark
        self.kafka = kafka
        self.rows = 0
        self.job = Job(
            kafka.bootstrap_servers,
            kafka.topic(partitions),
            kafka.topic(2),
            str(directory / "checkpoint"),
            kafka.name(),
        )

    def produce(self, count: int, partition: int = 0) -> None:
        """Write ``count`` further rows to the source topic."""
        first, self.rows = self.rows, self.rows + count
        rows = (Record(b"%06d" % number, partition=partition) for number in range(first, self.rows))
        self.kafka.produce(self.job.source, rows)

    def dies(self, step: str, batch: int) -> None:
        """Run the job in its own process, which is killed at the step ``step`` of the sink in ``batch``."""
        kill_driver_after(step, self.job.command, batch=batch, environment=self._java())

    def run_apart(self) -> str:
        """Run the job in its own process to its end, and return the output of the process."""
        return run_driver(self.job.command, self._java())

    def _java(self) -> dict[str, str]:
        return {"JDK_JAVA_OPTIONS": java_options()}

    def run(self) -> str:
        """Run the job in this process to its end; return the error of its query, "" if it has none."""
        try:
            self.job.start(self.spark).awaitTermination()
        except Exception as error:
            return str(error)
        return ""

    def asked(self, *parts: str) -> str:
        """Run the job. Check that it writes nothing, and that its error offers ``firstBatch`` and contains
        ``parts``.

        Returns the error's text.
        """
        before = self.written()
        text = self.run()
        missing = [part for part in ("firstBatch=", *parts) if part not in text]
        assert not missing, (missing, text[-6000:])
        assert self.written() == before
        return text

    def answer(self, question: str, batch: int) -> None:
        """Set the job's option ``firstBatch`` to the value for ``batch`` in the error text ``question``."""
        [answer] = set(re.findall(rf"firstBatch=({batch}@\d+)", question))
        self.job = self.job.but(options={**self.job.options, "firstBatch": answer})

    def goes_on(self) -> None:
        """Run the job. Check that the query ends without an error, and that each row is then written once."""
        text = self.run()
        assert text == "", text[-6000:]
        self.check()

    def written(self) -> Counter[str]:
        """The values of the source in the output topic (its rows may be longer), and how often each occurs."""
        return Counter(str(each.text)[:6] for each in self.kafka.read(self.job.topic))

    def check(self) -> None:
        """Check that each row of the source topic is in the output topic once."""
        assert self.written() == Counter(self._values())

    def _values(self) -> list[str]:
        return [f"{number:06}" for number in range(self.rows)]

    def none_lost(self) -> bool:
        return set(self.written()) == set(self._values())

    def refused(self, *parts: str) -> None:
        """Run the job. Check that it writes nothing, and fails with an error that contains all ``parts``."""
        before = self.written()
        text = self.run()
        assert all(part in text for part in parts), text[-6000:]
        assert self.written() == before

    # -- losses

    @property
    def offsets(self) -> Path:
        return self.job.directory / "offsets"

    @property
    def commits(self) -> Path:
        return self.job.directory / "commits"

    @property
    def query_group(self) -> str:
        """The consumer group whose offset names the sink of this query (``odradek.spark.sink.names.query_group``)."""
        return query_group(json.loads((self.job.directory / "metadata").read_text())["id"])

    def save(self, name: str) -> Path:
        """Copy the checkpoint; return the copy's path."""
        return Path(shutil.copytree(self.job.directory, self.job.directory.with_name(name)))

    def restore(self, saved: Path) -> None:
        shutil.rmtree(self.job.directory)
        shutil.copytree(saved, self.job.directory)

    def delete_groups(self, *groups: str) -> None:
        for group, deleted in self.kafka.admin.delete_consumer_groups([*groups]).items():
            deleted.result()
            assert not self.has_offsets(group)

    def has_offsets(self, group: str) -> bool:
        """Whether a group has a committed offset."""
        with self.cluster() as cluster:
            found = cluster.fetch_offsets(group, None)
        return any(offset >= 0 for offset, _ in found.values())

    def transactional_ids(self) -> list[str]:
        """The transactional ids of the sink that have not expired."""
        with self.cluster() as cluster:
            return sorted(cluster.list_transactions(f"{self.job.name}-"))

    def cluster(self) -> Cluster:
        return Cluster(ClientSettings.from_options(self.kafka.options))
