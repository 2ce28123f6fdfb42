"""The time that ``odradek certify`` adds to a job: ``python -m benchmarks.certify --minutes 10 [--only postgres]``.

The job copies 60 records in three transactions and always takes one second. For the given time, the certifier runs the
job again and again, in parallel on two brokers (stages), each time with one injected fault. In a run that started the
job only once, the time outside the life of the job's process is the certifier's: restoring the snapshot, adding rules,
reading outputs. With ``--only postgres`` the job stores the records and its positions in PostgreSQL.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, ClassVar, Final

from benchmarks import machine
from odradek.certify import certifier
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.run import Run, Stage
from tests.support.postgres import PostgresServer

RECORDS: Final = 60
JOB: Final = """
import os, pathlib, sys, time
began = time.time()
from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, journal, data = sys.argv[1:]
quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
quick["metadata.recovery.strategy"] = "none"
consumer = Consumer({**quick, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
producer = Producer({**quick, "transactional.id": "t", "retry.backoff.ms": 20})
producer.init_transactions(30)
(at,) = consumer.committed([TopicPartition("in", 0)], 30)
consumer.assign([TopicPartition("in", 0, max(at.offset, 0))])
_, end = consumer.get_watermark_offsets(TopicPartition("in", 0), 30)
position = max(at.offset, 0)
while position < end:
    records = [each for each in consumer.consume(20, timeout=0.2) if each.error() is None]
    if not records:
        position = consumer.position(consumer.assignment())[0].offset
        continue
    producer.begin_transaction()
    for each in records:
        producer.produce("out", key=each.key(), value=each.value().upper())
    position = records[-1].offset() + 1
    producer.send_offsets_to_transaction(
        [TopicPartition("in", 0, position)], consumer.consumer_group_metadata(), 30
    )
    producer.commit_transaction(30)
time.sleep(max(0.0, began + 1.0 - time.time()))
pathlib.Path(journal, data.replace("/", "_")).write_text(str(time.time() - began))
os._exit(0)
"""

STORING: Final = """
import os, pathlib, sys, time
began = time.time()
import psycopg
from confluent_kafka import Consumer, TopicPartition

bootstrap, journal, data = sys.argv[1:]
quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
quick["metadata.recovery.strategy"] = "none"
consumer = Consumer({**quick, "group.id": "g", "enable.auto.commit": False})
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"])
position = db.execute("SELECT coalesce(max(at), 0) FROM positions").fetchone()[0]
consumer.assign([TopicPartition("in", 0, position)])
_, end = consumer.get_watermark_offsets(TopicPartition("in", 0), 30)
while position < end:
    records = [each for each in consumer.consume(20, timeout=0.2) if each.error() is None]
    if not records:
        position = consumer.position(consumer.assignment())[0].offset
        continue
    position = records[-1].offset() + 1
    with db.cursor() as cursor:
        cursor.executemany("INSERT INTO results VALUES (%s)", [(each.value().decode(),) for each in records])
        cursor.execute("INSERT INTO positions VALUES (%s)", (position,))
    db.commit()
time.sleep(max(0.0, began + 1.0 - time.time()))
pathlib.Path(journal, data.replace("/", "_")).write_text(str(time.time() - began))
os._exit(0)
"""
TABLES: Final = "CREATE TABLE results (id text PRIMARY KEY); CREATE TABLE positions (at bigint PRIMARY KEY);"


class Timed(Stage):
    """A stage (a broker for the certifier's runs) that measures the time around the job's process.

    ``beyond_s`` has the seconds by which each run was longer than the life of its job's process.
    """

    journal: ClassVar[Path]
    beyond_s: ClassVar[list[float]] = []
    single: ClassVar[int] = 0

    def run(self, plan: Plan, *arguments: Any, **named: Any) -> Run:
        began = time.monotonic()
        run = super().run(plan, *arguments, **named)
        took_s = time.monotonic() - began
        Timed.single += len(plan) == 1
        lives = self.journal / str(self._directory / str(self._runs)).replace("/", "_")
        if plan and [code for _, code in run.exits] == [0] and lives.exists():
            self.beyond_s.append(took_s - float(lives.read_text()))
        return run


def certified(directory: Path, minutes: float, stages: int, dsn: str) -> Certificate:
    (directory / "job.py").write_text(STORING if dsn else JOB)
    (directory / "tables.sql").write_text(TABLES)
    (directory / "in.ndjson").write_text("".join(f'{{"value": "v{each}"}}\n' for each in range(RECORDS)))
    Timed.journal = directory / "lives"
    Timed.journal.mkdir()
    certifier.Stage = Timed  # type: ignore[attr-defined]
    python, lives = shlex.quote(sys.executable), shlex.quote(str(Timed.journal))
    options: dict[str, Any] = {
        "job": f"{python} job.py {{bootstrap}} {lives} {{data}}",
        "topic": ["in:1", "out:1"],
        "seed-records": ["in=in.ndjson"],
        "output": ["out"],
        "until": "exit",
        "stages": stages,
    }
    if dsn:
        options |= {"stage": f"postgres={dsn}", "stage-setup": "postgres=tables.sql"}
        options |= {"output": ["postgres:SELECT id FROM results"]}
    return Certifier.of(options, directory, f"{minutes * 60:g}s").run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certify", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--only", choices=["kafka", "postgres"], default="kafka")
    options = parser.parse_args()
    with ExitStack() as stack:
        dsn = stack.enter_context(PostgresServer()).dsn if options.only == "postgres" else ""
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-benchmark-")))
        certificate = certified(directory, options.minutes, options.stages, dsn)
    *_, high = quantiles(Timed.beyond_s, n=10)
    print(", ".join(f"{key} {value}" for key, value in machine.describe().items()))
    print(
        f"{Timed.single} runs of one fault in {certificate.took_s:.0f} s, verdict {certificate.verdict.value}"
    )
    print(f"beyond the job, of {len(Timed.beyond_s)} runs in which it was started once: ", end="")
    print(f"{median(Timed.beyond_s) * 1000:.0f} ms (median), {high * 1000:.0f} ms (9 of 10)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
