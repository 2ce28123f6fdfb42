"""A class-data sharing archive of Spark's loaded and verified classes, with which a driver starts in half the time.

The archive (JEP 350) is made once per Java and pyspark version, by a session that runs a small query. It is stored in the
tests' cache. A JVM that cannot use the archive starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from odradek.spark.environment import session
from odradek.spark.jars import locked
from tests.support.deadlines import TEST_S
from tests.support.java import SHORT_LIVED, class_archive, with_archive


@cache
def java_options() -> str:
    """JVM options for a driver that lives for a minute: a fast start matters more than peak performance."""
    archive = class_archive(f"spark-{pyspark.__version__}")
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            _make(archive)
    return " ".join([*SHORT_LIVED, *with_archive(archive)])


def _make(archive: Path) -> None:
    """Make the archive in a separate process, whose JVM writes it at its exit."""
    made = archive.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [sys.executable, "-m", "tests.spark.archive", str(made)],
        check=True,
        capture_output=True,
        timeout=TEST_S,
    )
    made.rename(archive)


def main() -> None:
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join([*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={sys.argv[1]}"]),
    }
    spark = session("archive", "local[2, 4]", conf)
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = spark.readStream.format("rate").load().repartition(2)
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(once=True)
            .start()
        )
        query.awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    spark.stop()
    jvm.stdin.close()
    jvm.wait(TEST_S)


if __name__ == "__main__":
    main()
