"""Creates the data directories of Apache Kafka in ``directories/``: python -m tests.clients.record_directories [NAME ...]

One directory is from a node that was stopped. The others are from nodes that were killed; one of these nodes ran Kafka 3.3.
The file beside a directory contains the records and metadata that clients read from the node.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import content
from tests.support.content import Asked, Filled
from tests.support.kafka_oracle import Oracle, format_directory, started

DIRECTORIES = Path(__file__).parent / "directories"
EARLIEST = "3.3.2"
"""A release that writes the settings of a new topic in front of the topic's own record."""

PROPERTIES = {
    "log.cleaner.backoff.ms": "200",
    # A short interval, so that the checkpoint file exists at the time of the kill.
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    # Not the default, so that a coordinator has to read the number of partitions of its topic.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "7",
}


def record_clean(home: Path) -> None:
    """Record a node that was stopped: a metadata snapshot with a log after it, transaction indexes in several segments."""
    often = {"metadata.log.max.record.bytes.between.snapshots": "4000"}
    with started(format_directory(home, PROPERTIES | often)) as oracle:
        filled = content.fill(oracle.host, oracle.port)
        content.fill_compacted(oracle.host, oracle.port)
        content.await_cleaning(oracle.host, oracle.port)
        save(home, "clean", oracle, filled)
    snapshots = list((home / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    assert max(path.name for path in snapshots) > f"{1:020d}", snapshots
    pack(home, "clean")


def record_killed(home: Path) -> None:
    """Record a killed node: voters in the log, a feature level changed after the format, preallocated indexes."""
    with started(format_directory(home, PROPERTIES, transaction_version=0, standalone=True)) as oracle:
        with Asked(oracle.host, oracle.port) as ask:
            update = {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 1}
            ask("update_features", 1, timeout=10_000, feature_updates=[update], validate_only=False)
        filled = content.fill(oracle.host, oracle.port, transaction_version=1)
        save(home, "killed", oracle, filled)
        oracle.process.kill()
        oracle.process.wait()
    pack(home, "killed")


def record_earliest(home: Path) -> None:
    settings = format_directory(home, PROPERTIES, transaction_version=None, release=EARLIEST)
    with started(settings, release=EARLIEST) as oracle:
        filled = content.fill(oracle.host, oracle.port, transaction_version=1)
        save(home, "earliest", oracle, filled)
        oracle.process.kill()
        oracle.process.wait()
    pack(home, "earliest")


def save(home: Path, name: str, oracle: Oracle, filled: Filled) -> None:
    seen = content.observe(oracle.host, oracle.port)
    epochs = content.leader_epochs(oracle.host, oracle.port)
    text = json.dumps({"filled": json.loads(filled.text()), "seen": seen, "leader_epochs": epochs})
    (home / f"{name}.json").write_text(text)


def pack(home: Path, name: str) -> None:
    """Pack a directory. Indexes are ten megabytes of zeros: ``--sparse`` stores them in a few bytes, as holes."""
    DIRECTORIES.mkdir(exist_ok=True)
    target = DIRECTORIES / f"{name}.tar.xz"
    tar = ["tar", "--sparse", "--owner=0", "--group=0", "--numeric-owner", "--sort=name", "-cJf", str(target)]
    subprocess.run([*tar, "-C", str(home), f"{name}.json", "data"], check=True)
    print(f"{target}: {target.stat().st_size} bytes")


def main(names: list[str]) -> None:
    recorders = {"clean": record_clean, "killed": record_killed, "earliest": record_earliest}
    for record in (recorders[name] for name in names or recorders):
        with tempfile.TemporaryDirectory(prefix="kafka-directory-") as home:
            record(Path(home))


if __name__ == "__main__":
    main(sys.argv[1:])
