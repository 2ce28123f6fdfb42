"""Runs the published integration tests of clients with Apache Kafka and with our broker, and compares the outcomes.

    python -m tests.clients.published.run                           every suite, both brokers
    python -m tests.clients.published.run --suite franz-go --against ours

Each suite is downloaded from its published package (Go modules, PyPI) into `.cache`; this repository has no copy. The
outcomes are written to `.cache/published`, the differences with their reasons to
`tests/compatibility/results/published.json`.

- franz-go: `pkg/kgo`, with one broker.
- sarama: `functional_*_test.go`, with five brokers, each behind a toxiproxy, which the tests cut and restore; `docker.py`
  replaces docker.
- kfake: its tests of share groups (`share*_test.go`). Each creates a cluster of kfake in its process; `kfake/cluster.go` has
  the place of kfake, and starts brokers by `kfake_brokers.py`.
- librdkafka: the tests of share consumers that need brokers, with three brokers. They are in no package: clone the tag from
  github.com/confluentinc/librdkafka into `.cache/published/librdkafka`; it is built there.
- confluent-kafka: the tests of its share consumer, with one broker. They, too, are in no package: clone v2.15.0 from
  github.com/confluentinc/confluent-kafka-python into `.cache/published/confluent-kafka-python`.
- kafka-python: `test/integration`, with one broker. The sdist lacks the module that starts brokers; for a running broker an
  empty one is enough. Its tests of TLS and SASL start brokers themselves, and are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as Xml
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import odradek
from odradek.process import BrokerProcess
from tests.clients.published import kfake_brokers
from tests.clients.published.docker import Orders, served
from tests.clients.published.reasons import REASONS
from tests.support import kafka_cluster
from tests.support.deadlines import TEST_S
from tests.support.foreign import CACHE, python_packages
from tests.support.java import RECORDED_VERSION
from tests.support.kafka_oracle import kafka
from tests.support.raw import free_port

VERSIONS: Final = {
    "franz-go": "v1.22.3",
    "kfake": "v0.0.0-20260918054303-01f206a7e32c",
    "sarama": "v1.61.1",
    "kafka-python": "3.0.12",
    "confluent-kafka": "v2.16.1",
    "librdkafka": "v2.15.0",
}
LIBRDKAFKA_TESTS: Final = [f"0{number}" for number in (*range(170, 182), 184, 185, 190)]
LIBRDKAFKA_SETTINGS: Final = {
    "group.share.assignment.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "num.partitions": "4",
}
"""librdkafka's settings for these tests, and less time until a member has its partitions."""
KFAKE_CLUSTER: Final = Path(__file__).parent / "kfake" / "cluster.go"
OF_KFAKE: Final = ("helpers_test.go", "go.mod", "go.sum")
TOXIPROXY: Final = "v2.5.0"
FOLDER: Final = CACHE / "published"
RESULTS: Final = Path(__file__).parents[2] / "compatibility" / "results" / "published.json"
KAFKA: Final = RECORDED_VERSION
ONE_NODE: Final = {"group.min.session.timeout.ms": "500", "num.partitions": "4"}
BROKERS: Final = (1, 2, 3, 4, 5)
PROXIED: Final = 29090
"""sarama's tests connect to broker N at port 29090 + N."""
FIVE_NODES: Final = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "2",
}
"""Settings of the five brokers, from sarama's docker-compose.yml and the settings file in Kafka's distribution."""
GO: Final = {
    "GOTOOLCHAIN": "local",
    "GOMODCACHE": str(CACHE / "go" / "modules"),
    "GOCACHE": str(CACHE / "go" / "build"),
    "GOFLAGS": "-modcacherw",
    "GOWORK": "off",
}


# ---- brokers


@contextlib.contextmanager
def one_broker(against: str, settings: Mapping[str, str] = ONE_NODE) -> Iterator[str]:
    """Start one broker and yield its address."""
    if against == "kafka":
        with kafka(settings) as oracle:
            yield f"{oracle.host}:{oracle.port}"
        return
    with tempfile.TemporaryDirectory(prefix="published-") as folder:
        port = free_port()
        # Kafka's settings file always has advertised.listeners, and a test checks the source of this setting's value.
        settings = {**settings, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        broker = BrokerProcess(Path(folder) / "broker", port=port, settings=settings)
        try:
            yield broker.start().bootstrap
        finally:
            broker.close()


class FiveBrokers(kafka_cluster.KafkaCluster):
    """Apache Kafka with five brokers, which advertise the addresses of their proxies."""

    def _of_broker(self, node_id: int, racks: Mapping[int, str]) -> dict[str, str]:
        made = super()._of_broker(node_id, racks)
        _, between = made["advertised.listeners"].split(",")
        made["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{PROXIED + node_id},{between}"
        return made


@contextlib.contextmanager
def five_brokers(against: str) -> Iterator[tuple[list[str], Orders]]:
    """Start five brokers; yield their own addresses in order, and the functions to stop and start them and read logs."""
    with tempfile.TemporaryDirectory(prefix="published-") as folder:
        if against == "kafka":
            kafka_cluster.NODES = BROKERS  # type: ignore[assignment]
            settings = {**FIVE_NODES, "min.insync.replicas": "1"}
            racks = {node: str(node) for node in BROKERS}
            with FiveBrokers(Path(folder) / "kafka", settings, racks=racks) as cluster:
                yield (
                    [f"127.0.0.1:{cluster.port(node)}" for node in BROKERS],
                    {
                        "stop": lambda node: str(cluster.stop(node)),
                        "start": lambda node: "" if node in cluster.running() else str(cluster.start(node)),
                        "logs": lambda node: cluster.brokers[node].log.read_text(errors="replace"),
                    },
                )
            return
        port = free_port()
        own = {f"odradek.node.{node}.broker.rack": str(node) for node in BROKERS}
        own["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{PROXIED + 1}"
        broker = BrokerProcess(
            Path(folder) / "broker",
            "--nodes",
            "5",
            port=port,
            settings={**FIVE_NODES, **own},
            control=True,
        )
        try:
            broker.start()
            nodes = odradek.connect(broker.control_url).nodes
            yield (
                [f"127.0.0.1:{port + node - 1}" for node in BROKERS],
                {
                    "stop": lambda node: str(nodes[node].stop()),
                    "start": lambda node: "" if nodes[node].state == "running" else str(nodes[node].start()),
                    "logs": lambda _: (Path(folder) / "broker" / "broker.log").read_text(errors="replace"),
                },
            )
        finally:
            broker.close()


@contextlib.contextmanager
def proxied(brokers: Sequence[str]) -> Iterator[str]:
    """Start toxiproxy with a proxy in front of each broker, and yield the URL of toxiproxy's API."""
    subprocess.run(
        ["go", "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY}"],
        env={**os.environ, **GO, "GOBIN": str(FOLDER)},
        check=True,
    )
    port = free_port()
    server = subprocess.Popen([FOLDER / "server", "-port", str(port)], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for node, broker in zip(BROKERS, brokers, strict=True):
            proxy = {"name": f"kafka{node}", "listen": f"127.0.0.1:{PROXIED + node}", "upstream": broker}
            while not _made(f"{url}/proxies", proxy):
                assert server.poll() is None, "toxiproxy has ended"
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(TEST_S)


def _made(url: str, what: Mapping[str, str]) -> bool:
    request = urllib.request.Request(url, json.dumps(what).encode(), {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False
    return True


# ---- suites


def franz_go(against: str) -> dict[str, str]:
    with one_broker(against) as bootstrap:
        settings = {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
        return _go_tests("github.com/twmb/franz-go", VERSIONS["franz-go"], "pkg/kgo", [], settings)


def sarama(against: str) -> dict[str, str]:
    with (
        five_brokers(against) as (brokers, orders),
        proxied(brokers) as proxies,
        served(orders, FOLDER / "bin") as docker,
    ):
        settings = {"TOXIPROXY_ADDR": proxies, "KAFKA_VERSION": KAFKA, **docker}
        arguments = ["-tags", "functional", "-run"]
        return _go_tests("github.com/IBM/sarama", VERSIONS["sarama"], ".", arguments, settings)


def kfake(against: str) -> dict[str, str]:
    module = _go_module("github.com/twmb/franz-go/pkg/kfake", VERSIONS["kfake"])
    folder = FOLDER / "kfake"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in (*module.glob("share*_test.go"), *(module / name for name in OF_KFAKE), KFAKE_CLUSTER):
        shutil.copy(file, folder)
        (folder / file.name).chmod(0o644)
    # kfake's go.mod is older than its tests: they need the client of the release that follows.
    modules = [
        f"github.com/twmb/franz-go@{VERSIONS['franz-go']}",
        "github.com/twmb/franz-go/pkg/kmsg@v1.15.1",
    ]
    subprocess.run(["go", "get", *modules], cwd=folder, env={**os.environ, **GO}, check=True)
    with kfake_brokers.served(against) as url:
        return _go_test(folder, ["-parallel", "1"], {"KFAKE_BROKERS": url})


def _go_module(module: str, version: str) -> Path:
    command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    environment = {**os.environ, **GO}
    found = subprocess.run(command, env=environment, capture_output=True, check=True, cwd=FOLDER)
    return Path(json.loads(found.stdout)["Dir"])


def _go_tests(
    module: str, version: str, package: str, arguments: list[str], settings: dict[str, str]
) -> dict[str, str]:
    folder = _go_module(module, version) / package
    if arguments[-1:] == ["-run"]:
        found_tests = {
            name
            for file in folder.glob("functional_*_test.go")
            for name in re.findall(r"^func (Test\w+)\(t ", file.read_text(), re.MULTILINE)
        }
        arguments = [*arguments, f"^({'|'.join(sorted(found_tests))})$"]
    return _go_test(folder, arguments, settings)


def _go_test(folder: Path, arguments: list[str], settings: dict[str, str]) -> dict[str, str]:
    environment = {**os.environ, **GO, **settings}
    command = ["go", "test", "-json", "-count", "1", "-timeout", "25m", *arguments, "."]
    events = FOLDER / "last.jsonl"
    with events.open("w") as output:
        subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    outcomes: dict[str, str] = {}
    begun: set[str] = set()
    for line in events.read_text().splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        name = event.get("Test", "")
        if event["Action"] == "run":
            begun.add(name)
        elif name and event["Action"] in ("pass", "fail", "skip"):
            outcomes[name] = event["Action"]
    # Tests that were still running when the suite was ended.
    outcomes |= {name: "fail" for name in begun - outcomes.keys()}
    return outcomes


NO_SERVICE: Final = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def dump_logs(self):
        pass


class SpawnedService:
    pass
"""


def kafka_python(against: str) -> dict[str, str]:
    folder = _sdist("kafka-python", VERSIONS["kafka-python"])
    (folder / "test" / "__init__.py").touch()
    (folder / "test" / "service.py").write_text(NO_SERVICE)
    with one_broker(against) as bootstrap:
        settings = {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": KAFKA, "KAFKA_ROOT": str(FOLDER)}
        without = ["--ignore", "test/integration/test_ssl_integration.py"]
        return _pytest(folder, ["test/integration", *without], settings, FOLDER / f"kafka-python-{against}")


def confluent_kafka(against: str) -> dict[str, str]:
    """The tests import trivup, which starts Kafka, and the packages for a schema registry."""
    folder = _clone("confluent-kafka-python")
    trivup = FOLDER / "trivup" / "trivup" / "clusters"
    trivup.mkdir(parents=True, exist_ok=True)
    (trivup / "KafkaCluster.py").write_text("class KafkaCluster:\n    pass\n")
    version = VERSIONS["confluent-kafka"].removeprefix("v")
    packages = python_packages(f"confluent-kafka[avro,json,protobuf]=={version}", "pytest", "pytest-timeout")
    brokers = {**LIBRDKAFKA_SETTINGS, "group.share.record.lock.duration.ms": "1000"}
    with one_broker(against, brokers) as bootstrap:
        path = os.pathsep.join(map(str, (packages, FOLDER / "trivup", folder)))
        settings = {"BROKERS": bootstrap, "PYTHONPATH": path}
        tests = ["tests/integration/share_consumer"]
        return _pytest(folder, tests, settings, FOLDER / f"confluent-kafka-{against}")


def _clone(name: str) -> Path:
    folder = FOLDER / name
    assert folder.exists(), f"no {folder}: see the docstring of this module"
    return folder


def _pytest(folder: Path, tests: list[str], settings: dict[str, str], output: Path) -> dict[str, str]:
    report = output.with_suffix(".xml")
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-W", "ignore", *tests]
    command += [
        "-p",
        "no:cacheprovider",
        "--timeout",
        "180",
        "--tb",
        "native",
        "-q",
        "--junitxml",
        str(report),
    ]
    with output.with_suffix(".txt").open("w") as file:
        subprocess.run(command, cwd=folder, env={**os.environ, **settings}, stdout=file)
    outcomes = {}
    for case in Xml.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcome = "pass" if not kinds else "skip" if kinds == {"skipped"} else "fail"
        outcomes[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return outcomes


def _sdist(name: str, version: str) -> Path:
    folder = FOLDER / f"{name}-{version}"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "-d", str(FOLDER), f"{name}=={version}"], check=True)
        (archive,) = FOLDER.glob(f"{name.replace('-', '_')}-{version}.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(FOLDER, filter="data")
        shutil.move(FOLDER / archive.name.removesuffix(".tar.gz"), folder)
    return folder


def librdkafka(against: str) -> dict[str, str]:
    folder = _clone("librdkafka")
    log = FOLDER / f"librdkafka-{against}.txt"
    if not (folder / "tests" / "test-runner").exists():
        build = "./configure --disable-gssapi && make -j2 libs && make -C tests -j2 build"
        subprocess.run(build, shell=True, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    (folder / "tests" / "test.conf").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="published-") as home, three_brokers(against) as bootstrap:
        settings = Path(home) / "test.conf"
        settings.write_text(f"bootstrap.servers={bootstrap}\ntest.timeout.multiplier=3\n")
        environment = {
            "LD_LIBRARY_PATH": "../src:../src-cpp",
            "RDKAFKA_TEST_CONF": str(settings),
            "TESTS": ",".join(LIBRDKAFKA_TESTS),
            "TEST_KAFKA_VERSION": KAFKA,
        }
        with log.open("w") as output:
            subprocess.run(
                ["./test-runner", f"-p{len(LIBRDKAFKA_TESTS)}"],
                cwd=folder / "tests",
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
    found = re.findall(r" (01\w+) +\| +(PASSED|FAILED|SKIPPED) \|", log.read_text())
    return {name: {"PASSED": "pass", "FAILED": "fail", "SKIPPED": "skip"}[outcome] for name, outcome in found}


@contextlib.contextmanager
def three_brokers(against: str) -> Iterator[str]:
    """Start three brokers and yield their addresses."""
    with tempfile.TemporaryDirectory(prefix="published-") as folder:
        if against == "kafka":
            with kafka_cluster.KafkaCluster(Path(folder) / "kafka", LIBRDKAFKA_SETTINGS) as cluster:
                yield cluster.bootstrap
            return
        port = free_port()
        broker = BrokerProcess(
            Path(folder) / "broker", "--nodes", "3", port=port, settings=LIBRDKAFKA_SETTINGS
        )
        try:
            broker.start()
            yield ",".join(f"127.0.0.1:{port + node}" for node in range(3))
        finally:
            broker.close()


SUITES: Final = {
    "franz-go": franz_go,
    "kfake": kfake,
    "librdkafka": librdkafka,
    "sarama": sarama,
    "kafka-python": kafka_python,
    "confluent-kafka": confluent_kafka,
}


# ---- comparing


def compare() -> None:
    """Write the numbers of tests that passed, and a line for each test that did not pass with both brokers.

    Suites without outcomes keep their results. With Apache Kafka a suite may not have been run.
    """
    kept = json.loads(RESULTS.read_text())
    counts, rows = kept["suites"], kept["tests"]
    for suite, version in VERSIONS.items():
        kafkas, ours = (_outcomes(suite, against) for against in ("kafka", "ours"))
        if not ours:
            continue
        passed = {name for name in ours if ours[name] == "pass" == kafkas.get(name, "pass")}
        counts[suite] = {
            "version": version,
            "kafka": KAFKA if kafkas else None,
            "tests": len(kafkas.keys() | ours.keys()),
            "pass": len(passed),
        }
        rows = [row for row in rows if row["suite"] != suite]
        rows += [
            {
                "suite": suite,
                "version": version,
                "test": name,
                "kafka": kafkas.get(name, "not run"),
                "ours": ours.get(name, "not run"),
                "reason": reason(suite, name),
            }
            for name in sorted((kafkas.keys() | ours.keys()) - passed)
        ]
    rows.sort(key=lambda row: [*VERSIONS].index(row["suite"]))
    head = json.dumps(counts)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    RESULTS.write_text(f'{{"suites": {head},\n "tests": [\n{lines}\n]}}\n')


def _outcomes(suite: str, against: str) -> dict[str, str]:
    file = FOLDER / f"{suite}-{against}.json"
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


def reason(suite: str, name: str) -> str:
    """Why a test does not pass with both brokers: the entry of ``REASONS`` for the longest prefix of its name.

    Without an entry: "not explained".
    """
    reasons = REASONS.get(suite, {})
    known = [each for each in reasons if name.startswith(each)]
    return reasons[max(known, key=len)] if known else "not explained"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--against", choices=("kafka", "ours"), action="append")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for suite in arguments.suite or SUITES:
        for against in arguments.against or ("kafka", "ours"):
            outcomes = SUITES[suite](against)
            (FOLDER / f"{suite}-{against}.json").write_text(json.dumps(outcomes, indent=1, sort_keys=True))
            passed = sum(outcome == "pass" for outcome in outcomes.values())
            print(
                f"{suite} {VERSIONS[suite]} against {against}: {passed} of {len(outcomes)} pass", flush=True
            )
    compare()


if __name__ == "__main__":
    main()
