"""The time that ``odradek certify`` adds to a job: ``python -m benchmarks.certify --minutes 10``.

The job copies 60 records in three transactions and always takes one second. For the given time, the certifier runs the
job again and again, in parallel on two brokers (stages), each time with one injected fault. In a run that started the
job only once, the time outside the life of the job's process is the certifier's: restoring the snapshot, adding rules,
reading outputs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, ClassVar, Final

from benchmarks import machine
from odradek.certify import certifier
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.run import Run, Stage

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


def certified(directory: Path, minutes: float, stages: int) -> Certificate:
    (directory / "job.py").write_text(JOB)
    (directory / "in.ndjson").write_text("".join(f'{{"value": "v{each}"}}\n' for each in range(RECORDS)))
    Timed.journal = directory / "lives"
    Timed.journal.mkdir()
    certifier.Stage = Timed  # type: ignore[attr-defined]
    python, lives = shlex.quote(sys.executable), shlex.quote(str(Timed.journal))
    options = {
        "job": f"{python} job.py {{bootstrap}} {lives} {{data}}",
        "topic": ["in:1", "out:1"],
        "seed-records": ["in=in.ndjson"],
        "output": ["out"],
        "until": "exit",
        "stages": stages,
    }
    return Certifier.of(options, directory, f"{minutes * 60:g}s").run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certify", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--stages", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-benchmark-") as name:
        certificate = certified(Path(name), options.minutes, options.stages)
    *_, high = quantiles(Timed.beyond_s, n=10)
    print(", ".join(f"{key} {value}" for key, value in machine.describe().items()))
    print(
        f"{Timed.single} runs of one fault in {options.minutes:g} minutes, verdict {certificate.verdict.value}"
    )
    print(f"beyond the job, of {len(Timed.beyond_s)} runs in which it was started once: ", end="")
    print(f"{median(Timed.beyond_s) * 1000:.0f} ms (median), {high * 1000:.0f} ms (9 of 10)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
