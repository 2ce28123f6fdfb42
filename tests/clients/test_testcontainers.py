"""The Kafka modules of the Testcontainers libraries, unmodified, with our image instead of theirs.

The Docker engine is the machine's own if one runs. Otherwise it is ours (`tests/support/engine`), which builds the image
from the Dockerfile and runs containers as processes in namespaces, as the user of the image.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.terminal import OUTSIDE, Terminal, commands
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.engine import Engine, RealEngine, engine_or_skip
from tests.support.foreign import (
    GO_ENVIRONMENT,
    NPM_ENVIRONMENT,
    go_program,
    node_program,
    python_packages,
    tool_or_skip,
)
from tests.support.java import jars_folder, java, kafka_classpath
from tests.support.javaprog import JVM_OPTIONS, compiled

pytestmark = pytest.mark.foreign

HERE = Path(__file__).with_name("testcontainers")
ROOT = HERE.parents[2]
# A replacement of the command `docker` for the engine.
PROGRAMS = ROOT / "tests" / "docs" / "bin"
TESTCONTAINERS_PYTHON = "testcontainers==4.15.0"
JAVA_ARTIFACTS = ("testcontainers-kafka:2.0.4", "kafka:1.21.4")
IMAGE = "odradek:local"
# Some modules take the tag for the version of Confluent's image, and refuse KRaft below 7.0.0.
AS_CONFLUENT = "odradek:8.3.0"
# Node's module accepts only versions as tags. Before 8.0.0 it starts ZooKeeper by default.
BEFORE_KRAFT = "odradek:7.9.0"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine | RealEngine]:
    with engine_or_skip() as engine:
        yield engine


def says(engine: Engine | RealEngine, command: Sequence[object], **environment: str) -> list[dict[str, Any]]:
    """Run a program with ``engine``, fail if it does not succeed, and return each line of JSON that it prints."""
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **engine.environment, **environment},
        capture_output=True,
        text=True,
        timeout=TEST_S,
        check=False,
    )
    logs = "\n".join(each.log.text for each in [*engine.removed, *engine.containers.values()])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def expect_modules(
    engine: Engine | RealEngine, command: Sequence[object], images: Mapping[str, str], **environment: str
) -> None:
    """Check that each module starts a container, runs a transaction through the mapped port, and removes the container."""
    before = len(engine.removed)
    said = says(engine, [*command, *(f"{name}={image}" for name, image in images.items())], **environment)
    assert said == [{"module": name, "read": ["paid"]} for name in images]
    assert engine.containers == {}
    removed: Sequence[Any] = engine.removed[before:]
    for name, container in zip(images, removed, strict=True):
        # A slow machine is not the module's fault.
        warnings = [line for line in container.log.text.splitlines() if '"level": "warning"' in line]
        assert [line for line in warnings if "event loop is late" not in line] == [], name


def test_python(engine: Engine | RealEngine):
    images = {"KafkaContainer": IMAGE, "KafkaContainer.with_kraft": AS_CONFLUENT, "RedpandaContainer": IMAGE}
    folder = python_packages(TESTCONTAINERS_PYTHON)
    expect_modules(engine, [sys.executable, HERE / "python" / "modules.py"], images, PYTHONPATH=str(folder))


@pytest.mark.parametrize("artifact", JAVA_ARTIFACTS)
def test_java(engine: Engine | RealEngine, artifact: str):
    images = {
        "kafka.KafkaContainer": IMAGE,
        "kafka.ConfluentKafkaContainer": IMAGE,
        "containers.KafkaContainer": IMAGE,
        "containers.KafkaContainer.withKraft": AS_CONFLUENT,
    }
    jars = jars_folder(artifact.replace(":", "-"), f"org.testcontainers:{artifact}")
    programs = compiled(HERE / "java", f"{jars}/*{os.pathsep}{kafka_classpath()}")
    expect_modules(engine, [java(), *JVM_OPTIONS, "-cp", programs, "Modules"], images)


def test_go(engine: Engine | RealEngine):
    command = go_program("testcontainers", HERE / "go")
    expect_modules(engine, command, {"kafka.Run": IMAGE})


def test_node(engine: Engine | RealEngine):
    """The Kafka modules of Testcontainers for Node work with our image, with ZooKeeper mode and with KRaft mode.

    They interpret the image's tag as a version of Confluent Platform, which has only KRaft from 8.0.0 on.
    """
    command = node_program("modules", HERE / "node")
    images = {"KafkaContainer": BEFORE_KRAFT, "KafkaContainer.withKraft": AS_CONFLUENT}
    expect_modules(engine, command, images)


def test_a_container_with_the_broker_s_handle(engine: Engine | RealEngine):
    folder = python_packages(TESTCONTAINERS_PYTHON)
    command = [sys.executable, HERE / "python" / "container.py", IMAGE]
    assert says(engine, command, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}") == [
        {"hits": 1, "end_txns": 2},
        {"state": "CompleteCommit", "events": True},
        {"days": 7, "nodes": 3},
        {"states": ["running"] * 3, "transactions": []},
        {"brokers": 3, "servers": 3},
        {"code": 0, "said": ["orders"]},
        {"code": 0, "said": ["orders"]},
        {"code": 0, "said": []},
        {"code": 0, "said": ["hello"]},
        {"code": 0, "said": ["1"]},
        {"code": 0, "said": ["[::1]:9092 is healthy"]},
        {"brokers": 2, "protocol": "SASL_SSL", "said": "orders"},
        {"certificates": False},
        {"failed": ["num.partitions"]},
        {"failed": ["--tmpfs /records"]},
    ]
    assert engine.containers == {}


def test_the_python_of_the_page_works(engine: Engine | RealEngine):
    page = (ROOT / "docs" / "container.md").read_text("utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == 2
    folder = python_packages(TESTCONTAINERS_PYTHON)
    for snippet in snippets:
        says(engine, [sys.executable, "-c", snippet], PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")


def test_the_page_names_the_versions_that_are_tested():
    page = (ROOT / "docs" / "container.md").read_text("utf-8")
    go = re.search(r"modules/kafka v(\S+)", (HERE / "go" / "go.mod").read_text("utf-8"))
    node = json.loads((HERE / "node" / "package.json").read_text("utf-8"))["dependencies"]
    assert go is not None
    for named in (
        TESTCONTAINERS_PYTHON.replace("==", " "),
        *(artifact.replace(":", " ") for artifact in JAVA_ARTIFACTS),
        f"modules/kafka {go[1]}",
        f"@testcontainers/kafka {node['@testcontainers/kafka']}",
    ):
        assert named in page, named


# ---- docs/recipes/


def section_of(page: str, heading: str) -> list[Block]:
    """The code blocks below a heading of a page."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    headings = [number for number, line in enumerate(lines, 1) if line.startswith("## ")]
    begin = lines.index(f"## {heading}") + 1
    end = min((number for number in headings if number > begin), default=len(lines))
    return [block for block in blocks(page) if begin < block.line < end]


def test_the_recipe_for_docker(engine: Engine | RealEngine, tmp_path: Path):
    (tmp_path / "Dockerfile").touch()
    with Terminal(tmp_path, programs=PROGRAMS, ports=OUTSIDE, **engine.environment) as terminal:
        for block in blocks("docs/recipes/docker.md"):
            if "docker rm" in block.text:
                with urllib.request.urlopen(terminal.here("http://localhost:18092/"), timeout=HANG_S) as page:
                    assert b"<title>" in page.read()
            terminal.take(block)


def test_the_commands_of_the_image_s_page(engine: Engine | RealEngine, tmp_path: Path):
    (tmp_path / "Dockerfile").touch()
    first, tls, faults = (block for block in blocks("docs/container.md") if block.language == "console")
    with Terminal(tmp_path, programs=PROGRAMS, ports=OUTSIDE, **engine.environment) as terminal:
        (build, _), (run, _) = commands(first.text)
        terminal.run(build)
        # On the page the container runs in the foreground. With `-d` the test can continue.
        name = terminal.run(run.replace("docker run", "docker run -d")).strip()
        terminal.run(f"until docker exec {name} odradek health; do sleep 1; done; docker rm -f {name}")
        terminal.take(tls)
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with socket.create_connection(("localhost", int(terminal.ports["9092"])), HANG_S) as connection:
            trusting.wrap_socket(connection, server_hostname="localhost").close()
        terminal.run("docker rm -f kafka")
        terminal.take(faults)
        assert "EndTxn nth=2 -> lose-answer" in terminal.run("docker exec kafka odradek fault list")
        terminal.run("docker rm -f kafka")


RECIPES = "docs/recipes/testcontainers.md"


@pytest.mark.parametrize(
    ("section", "program", "environment"),
    [
        ("Python", "python3", {}),
        ("Java", "mvn", {}),
        ("Go", "go", GO_ENVIRONMENT),
        ("Node", "npm", NPM_ENVIRONMENT),
    ],
)
def test_a_recipe_typed_in_an_empty_folder(
    engine: Engine | RealEngine, section: str, program: str, environment: dict[str, str], tmp_path: Path
):
    """A recipe typed in an empty folder runs: a fault rule loses a commit's response, and the container is removed."""
    tool_or_skip(program)
    variables: dict[str, Any] = {**engine.environment, **environment}
    if section == "Python":
        variables["PYTHONPATH"] = f"{python_packages(TESTCONTAINERS_PYTHON)}{os.pathsep}{ROOT}"
    before = set(engine.containers)
    project, temporary = tmp_path / "payments", tmp_path / "temporary"
    project.mkdir()
    temporary.mkdir()
    variables["TMPDIR"] = str(temporary)
    with Terminal(project, ports=OUTSIDE, **variables) as terminal:
        for block in section_of(RECIPES, section):
            terminal.take(block)
    assert set(engine.containers) == before
