"""``python -m benchmarks.first_test``: the time to the first passing transactional test, for each way to install Odradek.

The test is always the same: a producer commits a record in a transaction, and a read_committed consumer reads it, both with
confluent-kafka. The downloads of pip and uv are already in their caches, and the jars of Apache Kafka in `.cache/`. The
wheel, the folder of `make folder` and the container image are built before: docs/container.md has the time of the build.

``--engine "COMMAND"`` is a prefix for the test that needs the container engine, to run it where it reaches published ports.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
HANDLE: Final = """
import odradek, pytest
@pytest.fixture
def servers():
    with odradek.Broker() as broker:
        yield broker.bootstrap_servers
"""
CONTAINER: Final = """
import pytest
from odradek.testcontainers import OdradekContainer
@pytest.fixture
def servers():
    with OdradekContainer("odradek") as broker:
        yield broker.bootstrap_servers
"""
FOLDER: Final = """
import json, pytest, subprocess
@pytest.fixture
def servers():
    command = ["odradek/odradek", "serve", "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        started = next(line for line in broker.stdout if "start_ms" in line)
        yield json.loads(started)["listeners"][0].partition("://")[2]
        broker.terminate()
"""
APACHE: Final = """
import pytest
from tests.support import kafka_oracle
@pytest.fixture
def servers(tmp_path):
    with kafka_oracle.kafka(directory=tmp_path) as kafka:
        yield f"{kafka.host}:{kafka.port}"
"""
PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_first.py")

Command = tuple[str | Path, ...]


class Way:
    """A way to install Odradek: the installing commands, and the command that runs the test, in a separate directory."""

    def __init__(self, name: str, folder: Path, fixture: str) -> None:
        self.name = name
        self.folder = folder
        self.is_installed = False  # whether its requirements exist already
        self.installing: list[Command] = []
        self.python = folder / "venv" / "bin" / "python"
        self.test: Command = (self.python, *PYTEST)
        folder.mkdir()
        (folder / "test_first.py").write_text(TEST.format(fixture=fixture))

    def with_pip(self, *packages: str | Path) -> Way:
        install = (self.python, "-m", "pip", "install", "--quiet", *packages, *CLIENTS)
        self.installing += [(sys.executable, "-m", "venv", self.folder / "venv"), install]
        return self

    def with_uv(self, *packages: str | Path) -> Way:
        install = (uv("uv"), "pip", "install", "--quiet", "--python", self.python, *packages, *CLIENTS)
        self.installing += [(uv("uv"), "venv", "--quiet", self.folder / "venv"), install]
        return self

    def seconds(self) -> tuple[float, float]:
        """Seconds until the first test run has passed, and seconds of the next run."""
        took = []
        for commands in ([*self.installing, self.test], [self.test]):
            began = time.perf_counter()
            for command in commands:
                run(*command, cwd=self.folder)
            took.append(time.perf_counter() - began)
        first, again = took
        return first, again


def ways(work: Path, engine: list[str]) -> Iterator[Way]:
    clone: Command = ("git", "clone", "--quiet", ROOT, "checkout")

    way = Way("`pip install .` in a venv, from the checkout, fixture `odradek`", work / "checkout", ODRADEK)
    way.installing.append(clone)
    yield way.with_pip("./checkout")

    wheel = built(work)
    yield Way("`pip install WHEEL` in a venv, fixture `odradek`", work / "pip", ODRADEK).with_pip(wheel)
    yield Way("`uv pip install WHEEL`, fixture `odradek`", work / "uv", ODRADEK).with_uv(wheel)

    way = Way("`uvx --from WHEEL`, fixture `odradek`", work / "uvx", ODRADEK)
    also = [word for package in CLIENTS for word in ("--with", package)]
    way.test = (uv("uvx"), "--quiet", "--from", wheel, *also, "python", *PYTEST)
    yield way

    way = Way("`make test`'s environment in a clone, `odradek.Broker`", work / "make", HANDLE)
    way.installing += [clone, ("make", "-s", "-C", "checkout", ".venv/.dev")]
    way.test = (way.folder / "checkout/.venv/bin/python", *PYTEST)
    yield way

    run("make", "-s", "-C", ROOT, "folder")
    [packed] = (ROOT / "dist").glob("odradek-*linux*.tar.gz")
    way = Way("the folder of `make folder`, `odradek serve`", work / "folder", FOLDER)
    way.installing.append(("tar", "-xzf", packed))
    yield way.with_uv()

    if has_image(engine):
        way = Way("the container image, `OdradekContainer`", work / "container", CONTAINER)
        way.with_uv(f"odradek[testcontainers] @ {wheel.as_uri()}")
        way.test = (*engine, *way.test)
        yield way
    else:
        print("skipped: no engine with an image `odradek`", file=sys.stderr)

    way = Way("Apache Kafka 4.3.1 from its jars, Java and clients installed already", work / "jars", APACHE)
    way.is_installed = True
    way.test = ("env", f"PYTHONPATH={ROOT}", sys.executable, *PYTEST, "--rootdir", ".")
    yield way


def main() -> int:
    """Measure each way to install Odradek, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="", help="prefix for the command that uses the container engine")
    parser.add_argument("--only", default="", help="only ways whose name contains this text")
    options = parser.parse_args()
    print("| way in | nothing to the first passing test | the next run |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for way in ways(Path(name), shlex.split(options.engine)):
            if options.only in way.name:
                first, again = way.seconds()
                cold = "" if way.is_installed else f"{first:.1f} s"
                print(f"| {way.name} | {cold} | {again:.1f} s |", flush=True)
    return 0


def uv(name: str) -> str:
    return shutil.which(name) or str(Path(sys.executable).with_name(name))


def built(folder: Path) -> Path:
    wheel = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    run(sys.executable, "-m", "pip", *wheel, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


def has_image(engine: list[str]) -> bool:
    try:
        done = subprocess.run(
            [*engine, "docker", "image", "inspect", "odradek"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


def run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
