"""Programs with a session of Spark that Odradek did not start: by spark-submit, and on a Spark Connect server."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from odradek import Broker
from odradek.spark import environment
from tests.spark.archive import java_options
from tests.spark.audit.planting import Segment, bit_flip
from tests.spark.audit.test_audit_planted import write
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.raw import free_port

pytestmark = [pytest.mark.spark_apart, pytest.mark.slow]

# Uses Spark's connector and both formats of Odradek. `copies` is a streaming query.
PROGRAM = """
import sys
from odradek.spark import session
from odradek.spark.sink import progress

bootstrap_servers, data_dir, checkpoint = sys.argv[1:]
kafka = {"kafka.bootstrap.servers": bootstrap_servers}
ours = "odradek.exactly_once"
spark = session("elsewhere")
numbers = spark.range(5).selectExpr("cast(id as string) value")
numbers.write.format(ours).options(**kafka, topic="orders", name="numbers").mode("append").save()
orders = spark.readStream.format("kafka").options(**kafka, subscribe="orders", startingOffsets="earliest").load()
sink = {**kafka, "topic": "copies", "name": "copies"}
copies = orders.select("value").writeStream.format(ours).options(**sink, checkpointLocation=checkpoint)
copies.trigger(availableNow=True).start().awaitTermination()
segments = spark.read.format("odradek.segments").load(data_dir).where("topic = 'copies' and not control")
print(type(spark).__module__, spark.conf.get("spark.master"))
print(sorted(int(bytes(row.value)) for row in segments.collect()), progress(sink).batch)
"""


def variables(**more: str) -> dict[str, str]:
    home = str(environment.java().resolve().parents[1])
    jvm = {"JAVA_HOME": home, "JDK_JAVA_OPTIONS": java_options()}
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, **jvm, **more}


def submit(master: str, *more: str | Path) -> list[str | Path]:
    return [Path(pyspark.__path__[0]) / "bin" / "spark-submit", "--master", master, *more]


def with_connector() -> list[str | Path]:
    return ["--jars", ",".join(map(str, environment.connector_jars()))]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[list[str | Path]]:
    """The program and its arguments, as a command line. They name a broker that runs during the test."""
    (tmp_path / "program.py").write_text(PROGRAM)
    with Broker(topics={"orders": 3, "copies": 3}, data_dir=tmp_path / "data") as broker:
        yield [tmp_path / "program.py", broker.bootstrap_servers, tmp_path / "data", tmp_path / "checkpoint"]


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server that runs for this test only."""
    port = free_port()
    said = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    settings = [word for name, value in said.items() for word in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            submit("local[2]", *with_connector(), *settings, *main),
            env=variables(),
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: is_open(port), f"{tmp_path}/server.log", within_s=TEST_S)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(HANG_S)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()
    except OSError:
        return False
    return True


def run(command: list[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=variables(**more), capture_output=True, text=True, timeout=TEST_S)


def test_by_spark_submit_it_has_the_master_of_its_command_line(program):
    ended = run(submit("local[3]", *with_connector(), *program))
    assert ended.stdout == "pyspark.sql.session local[3]\n[0, 1, 2, 3, 4] 0\n", ended.stderr[-4000:]


def test_on_a_spark_connect_server_named_by_a_variable(program, connect_server, tmp_path):
    ended = run([sys.executable, *program], SPARK_REMOTE=connect_server)
    assert ended.stdout == "pyspark.sql.connect.session local[2]\n[0, 1, 2, 3, 4] 0\n", ended.stderr[-4000:]
    audit = [sys.executable, "-m", "odradek.spark.audit", tmp_path / "data", "--out", tmp_path / "report"]
    proven = run(audit, SPARK_REMOTE=connect_server)
    assert proven.returncode == 0, proven.stderr[-4000:]
    assert "Clean: " in proven.stdout
    assert (tmp_path / "report" / "report.html").exists()


def test_a_submitted_audit_sets_the_exit_code(tmp_path: Path):
    data = tmp_path / "data"
    with Broker(topics={"orders": 3, "input": 1}, data_dir=data) as broker:
        write(broker.bootstrap_servers, "orders")
    bit_flip(Segment(data / "orders-1"))
    job = Path(sys.modules["odradek"].__path__[0]) / "spark" / "audit" / "__main__.py"
    done = run(submit("local[2]", job, data, "--out", tmp_path / "report"))
    assert done.returncode == 1, done.stderr
    assert "Failed: 1 violation: damaged batches (1)." in done.stdout
    assert (tmp_path / "report" / "report.html").exists()
