"""The examples in examples/security, run like a user runs them."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import odradek
from server.options import parse
from tests.docs.kafka_scripts import write_scripts
from tests.docs.terminal import Terminal
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.java import SHORT_LIVED, jars_folder, java
from tests.support.javaprog import compiled
from tests.support.raw import free_port

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "security"
PASSWORDS = {"admin": "admin-secret", "shop": "shop-secret"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": "0",
}
SHOP = [
    (ResourceType.TOPIC, "orders", AclOperation.READ),
    (ResourceType.TOPIC, "invoices", AclOperation.WRITE),
]


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.iterdir():
        assert f"]({path.name}" in listed or path.name in ("README.md", "__pycache__"), path.name


@pytest.mark.more
def test_the_tests_pass_by_themselves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rights.py"]
    ended = subprocess.run(
        [*command, "--rootdir", str(EXAMPLES), "--basetemp", str(tmp_path / "temporary")],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=TEST_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout


# ---- compose


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text("utf-8"))
    return document


def test_the_variables_of_compose_start_a_broker_without_a_warning(tmp_path: Path) -> None:
    broker = compose()["services"]["broker"]
    settings = parse(["--tls-directory", str(tmp_path)], broker["environment"])
    assert settings.warnings == ()
    assert [topic.name for topic in settings.topics] == ["orders", "invoices"]


def test_each_service_waits_for_the_one_before_it_and_finds_its_files() -> None:
    document = compose()
    services = document["services"]
    waits = {name: each.get("depends_on") for name, each in services.items()}
    assert waits == {
        "broker": None,
        "acls": {"broker": {"condition": "service_healthy"}},
        "app": {"acls": {"condition": "service_completed_successfully"}},
    }
    assert {name for each in services.values() for name in each.get("configs", ())} == document[
        "configs"
    ].keys()
    assert {each["volumes"][0].partition(":")[0] for each in services.values()} == document["volumes"].keys()


class Here:
    """A function that replaces paths and addresses of a container by those on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._places = {
            "/etc/kafka/secrets": str(folder / "certificates"),
            "/certificates": str(folder / "certificates"),
            "/opt/kafka/bin": str(folder / "bin"),
            "/admin.properties": str(folder / "admin.properties"),
            "broker:29092": f"localhost:{self.port}",
            ":29092": f":{self.port}",
            ":9092": f":{free_port()}",
        }

    def __call__(self, text: str) -> str:
        pattern = "|".join(map(re.escape, self._places))
        return re.sub(pattern, lambda match: self._places[match[0]], text)

    def client(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self("/certificates/ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }


@pytest.mark.java
def test_the_service_of_acls_says_what_the_shop_may_do(tmp_path: Path) -> None:
    document, here = compose(), Here(tmp_path)
    services = document["services"]
    write_scripts(tmp_path / "bin", ["kafka-acls"])
    (tmp_path / "admin.properties").write_text(here(document["configs"]["admin.properties"]["content"]))
    environment: dict[str, Any] = {
        name: here(value) for name, value in services["broker"]["environment"].items()
    }
    with Terminal(tmp_path, **environment) as terminal:
        terminal.run(here(shlex.join(["odradek", "serve", *services["broker"]["command"]])))
        with pytest.raises(KafkaException, match="Transactional Id authorization failed"):
            pay(here.client("shop"), "shop-1")
        # Compose replaces two dollar signs by one.
        acls = services["acls"]
        terminal.run(here(shlex.join([*acls["entrypoint"], *acls["command"]])).replace("$$", "$"))
        pay(here.client("shop"), "shop-1")
        pay(here.client("admin"), "another")
        with pytest.raises(KafkaException, match="Transactional Id authorization failed"):
            pay(here.client("shop"), "another")


def pay(config: Mapping[str, Any], transactional_id: str) -> None:
    producer = Producer({**config, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(HANG_S)
    producer.begin_transaction()
    producer.produce("invoices", "paid")
    producer.commit_transaction(HANG_S)


# ---- Spring and Spark


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(
        tls=True, users=PASSWORDS, topics=["orders:1", "invoices:1"], settings=SETTINGS
    ) as started:
        producer = Producer(started.client_config("admin"))
        for number in range(3):
            producer.produce("orders", str(number))
        producer.flush(HANG_S)
        yield started


def allow(
    broker: odradek.Broker, *acls: tuple[ResourceType, str, AclOperation], prefixes: tuple[str, ...] = ()
) -> None:
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED if name in prefixes else ResourcePatternType.LITERAL,
            "User:shop",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in acls
    ]
    admin = AdminClient(broker.client_config("admin"))
    for future in admin.create_acls(bindings).values():
        future.result(HANG_S)


def invoices(broker: odradek.Broker) -> list[str]:
    return sorted(str(record.value) for record in broker.records("invoices"))


@pytest.mark.foreign
def test_the_spring_boot_application(broker: odradek.Broker, tmp_path: Path) -> None:
    project = EXAMPLES / "spring-boot"
    allow(
        broker,
        *SHOP,
        (ResourceType.GROUP, "shop", AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, "shop-", AclOperation.WRITE),
        prefixes=("shop-",),
    )
    jars = jars_folder("spring-boot", spring_boot(project / "pom.xml"))
    classpath = compiled(project / "src" / "main" / "java" / "shop", f"{jars}/*")
    resources = project / "src" / "main" / "resources"
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KAFKA_CA": str(broker.authority.ca),
        "KAFKA_USER": "shop",
        "KAFKA_PASSWORD": PASSWORDS["shop"],
    }
    log = tmp_path / "application.log"
    with log.open("w") as output:
        application = subprocess.Popen(
            [java(), *SHORT_LIVED, "-cp", f"{classpath}:{resources}", "shop.Application"],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: len(invoices(broker)) == 3 or application.poll() is not None, within_s=TEST_S)
    finally:
        application.kill()
        application.wait()
    assert invoices(broker) == ["invoice of 0", "invoice of 1", "invoice of 2"], log.read_text()


def spring_boot(pom: Path) -> str:
    """The Maven coordinates of the Spring Boot starter, with the version of the parent."""
    of_maven = {"maven": "http://maven.apache.org/POM/4.0.0"}
    project = ElementTree.parse(pom)
    version = project.findtext("maven:parent/maven:version", namespaces=of_maven)
    starter = project.findtext(".//maven:dependency/maven:artifactId", namespaces=of_maven)
    return f"org.springframework.boot:{starter}:{version}"


@pytest.mark.spark
def test_the_spark_job(spark: Any, broker: odradek.Broker, tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("secured_job", EXAMPLES / "spark" / "job.py")
    assert specification is not None
    assert specification.loader is not None
    job = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(job)
    allow(
        broker,
        *SHOP,
        (ResourceType.TRANSACTIONAL_ID, "invoices-job-", AclOperation.WRITE),
        (ResourceType.GROUP, "invoices-job", AclOperation.READ),
        (ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ),
        prefixes=("invoices-job-",),
    )
    options = job.connection(broker.bootstrap_servers, str(broker.authority.ca), "shop", PASSWORDS["shop"])
    job.bill(spark, options, str(tmp_path / "checkpoint"))
    assert invoices(broker) == ["invoice of 0", "invoice of 1", "invoice of 2"]
