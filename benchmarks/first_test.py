"""``python -m benchmarks.first_test``: from nothing to the first transactional test that passes, by each way in.

The test is the same everywhere: a producer commits a record in a transaction, a consumer with read_committed reads it, both
confluent-kafka. What pip and uv have downloaded before is in their caches; jars of Apache Kafka lie in `.cache/`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CLIENTS: Final = ("pytest", "confluent-kafka")
TEST: Final = """
from confluent_kafka import Consumer, Producer
{fixture}
def test_a_committed_record_is_read(servers):
    servers = {{"bootstrap.servers": servers}}
    producer = Producer({{**servers, "transactional.id": "t"}})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"paid")
    producer.commit_transaction()
    group = {{"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}}
    consumer = Consumer({{**servers, **group}})
    consumer.subscribe(["orders"])
    record = None
    while record is None:
        record = consumer.poll(1)
    consumer.close()
    assert record.value() == b"paid"
"""
ODRADEK: Final = """
import pytest
@pytest.fixture
def servers(odradek):
    return odradek.bootstrap_servers
"""
APACHE: Final = """
import pytest
from pathlib import Path
from tests.support import kafka_oracle
@pytest.fixture
def servers(tmp_path):
    with kafka_oracle.kafka(directory=tmp_path) as kafka:
        yield f"{kafka.host}:{kafka.port}"
"""


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = built(folder)
        rows = [
            ("`python -m venv`, `pip install`, pytest fixture `odradek`", *by_pip(folder / "pip", wheel)),
            ("`uv venv`, `uv pip install`, pytest fixture `odradek`", *by_uv(folder / "uv", wheel)),
            (
                "Apache Kafka 4.3.1 from its jars, Java and clients installed already",
                *by_jars(folder / "jars"),
            ),
        ]
    print("| way in | nothing to the first passing test | the next run |\n| --- | --- | --- |")
    for way, first, again in rows:
        print(f"| {way} | {'' if first is None else f'{first:.1f} s'} | {again:.1f} s |")
    return 0


def built(folder: Path) -> Path:
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def by_pip(folder: Path, wheel: Path) -> tuple[float, float]:
    written(folder, ODRADEK)
    python = folder / "venv" / "bin" / "python"

    def install() -> None:
        run("-m", "venv", folder / "venv")
        run("-m", "pip", "install", "--quiet", wheel, *CLIENTS, python=python)

    return timed(install, lambda: run("-m", "pytest", "-q", folder, python=python))


def by_uv(folder: Path, wheel: Path) -> tuple[float, float]:
    written(folder, ODRADEK)
    python = folder / "venv" / "bin" / "python"
    uv = shutil.which("uv") or Path(sys.executable).with_name("uv")

    def install() -> None:
        subprocess.run([uv, "venv", "--quiet", folder / "venv"], check=True)
        command = [uv, "pip", "install", "--quiet", "--python", python, wheel, *CLIENTS]
        subprocess.run(command, check=True)

    return timed(install, lambda: run("-m", "pytest", "-q", folder, python=python))


def by_jars(folder: Path) -> tuple[None, float]:
    written(folder, APACHE)
    began = time.perf_counter()
    run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        folder,
        folder / "test_first.py",
        cwd=ROOT,
    )
    return None, time.perf_counter() - began


def written(folder: Path, fixture: str) -> None:
    folder.mkdir()
    (folder / "test_first.py").write_text(TEST.format(fixture=fixture))


def timed(install: Callable[[], None], test: Callable[[], None]) -> tuple[float, float]:
    """The seconds until the first run has passed, and those of the next one."""
    began = time.perf_counter()
    install()
    test()
    first = time.perf_counter() - began
    began = time.perf_counter()
    test()
    return first, time.perf_counter() - began


def run(*arguments: str | Path, python: Path | str = sys.executable, cwd: Path | None = None) -> None:
    done = subprocess.run([python, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
