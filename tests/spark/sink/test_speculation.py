"""With Spark's own speculation on a standalone cluster, a copy that loses leaves no open transaction behind the last batch.

Spark starts a copy only on another host, and never in local mode. So two workers have different addresses of this
machine."""

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest

from odradek.spark import environment
from odradek.spark.sink import status
from odradek.spark.testing.driver import Driver, run_driver
from odradek.spark.testing.kafka import Record
from tests.spark.archive import java_options
from tests.spark.sink.test_lost_files import apache_kafka, broker_kind, kafka
from tests.support.raw import free_port

__all__ = ["apache_kafka", "broker_kind", "kafka"]

pytestmark = [pytest.mark.spark_apart, pytest.mark.slow]

SPARK = Path(pyspark.__path__[0])


@pytest.fixture
def variables():
    home = str(environment.java().resolve().parents[1])
    return {
        "JAVA_HOME": home,
        "JDK_JAVA_OPTIONS": java_options(),
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture
def master(variables, tmp_path):
    """The address of a standalone cluster with two workers."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy, quiet = "org.apache.spark.deploy", ["--webui-port", "0"]
    with ExitStack() as stack:

        def start(program: str, host: str, *more: str) -> None:
            command: list[Any] = [
                SPARK / "bin" / "spark-class",
                f"{deploy}.{program}",
                "--host",
                host,
                *quiet,
                *more,
            ]
            stack.enter_context(Driver(command, variables))

        start("master.Master", "127.0.0.1", "--port", str(port))
        for host in ("127.0.0.1", "127.0.0.2"):
            files = str(tmp_path / host)
            start("worker.Worker", host, "--cores", "2", "--memory", "1g", "--work-dir", files, address)
        yield address


def test_a_copy_that_lost_holds_no_reader_back(kafka, master, variables, tmp_path):
    source, topic, name = kafka.topic(2), kafka.topic(), kafka.name()
    # Large enough that Spark passes them to the task one by one.
    rows = [f"{number} ".ljust(100_000, "-").encode() for number in range(16)]
    kafka.produce(source, [Record(row, partition=number % 2) for number, row in enumerate(rows)])
    checkpoint = tmp_path / "checkpoint"
    job = Path(__file__).with_name("speculated.py")
    where = (kafka.bootstrap_servers, source, topic, checkpoint, name, master)
    run_driver([sys.executable, job, *where], variables)
    assert checkpoint.with_suffix(".copies").read_text().startswith(f"{name}-"), "the copy has written"
    found = status({**kafka.options, "name": name})
    assert found.decision is not None
    assert (found.decision.batch, found.half_committed, found.others) == (1, (), ())
    kafka.produce(topic, ["another producer's"])
    assert Counter(each.value for each in kafka.read(topic)) == Counter([*rows, b"another producer's"])
