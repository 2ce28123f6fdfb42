"""The recipes of docs/recipes/ that need neither an image nor another language run as printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from server.options import parse
from tests.docs.blocks import ROOT, Block, blocks, titled
from tests.docs.terminal import Terminal

# In place of a user's tests. It fails if there is no broker, or if it is not the broker of the page.
RUN_TESTS = """#!/bin/sh
odradek topic list --bootstrap "$2" | grep -q orders
"""


def take(page: str, folder: Path, **environment: Any) -> None:
    with Terminal(folder, **environment) as terminal:
        for block in blocks(page):
            terminal.take(block)


def test_pytest(tmp_path: Path) -> None:
    # A reader does not have the pytest plugins of our own tests.
    take("docs/recipes/pytest.md", tmp_path, PYTEST_ADDOPTS="-p no:asyncio -p no:cacheprovider")


def test_a_workflow_without_an_image(tmp_path: Path) -> None:
    workflow = yaml.safe_load(titled("docs/recipes/ci.md")[".github/workflows/test.yaml"])
    job = workflow["jobs"]["test"]
    steps = [step["run"] for step in job["steps"] if "run" in step]
    (tmp_path / "run-tests").write_text(RUN_TESTS)
    (tmp_path / "run-tests").chmod(0o755)
    with Terminal(tmp_path) as terminal:
        for name, value in job["env"].items():
            terminal.run(f"export {name}={value}")
        said = [terminal.run(step) for step in steps]
        assert "is healthy" in said[2]
        assert terminal.run("odradek fault list") is not None
    assert len(steps) == 4


def service(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the service ``name`` of a Compose file or of a GitLab job, which has its services in a list."""
    services = document["services"]
    return (
        services[name]
        if isinstance(services, dict)
        else next(each for each in services if each["alias"] == name)
    )


@pytest.mark.parametrize(
    ("page", "title", "job", "variables", "control"),
    [
        ("docs/recipes/docker.md", "compose.yaml", None, "environment", True),
        ("docs/recipes/kafka-ui.md", "compose.yaml", None, "environment", False),
        ("docs/recipes/ci.md", "github.yaml", "test", "env", True),
        ("docs/recipes/ci.md", ".gitlab-ci.yml", None, "variables", True),
    ],
)
def test_the_variables_of_a_service_start_a_broker_without_a_warning(
    page: str, title: str, job: str | None, variables: str, control: bool
) -> None:
    document = yaml.safe_load(titled(page)[title])
    if job or "test" in document:
        document = document["jobs"][job] if job else document["test"]
    kafka = service(document, "kafka")
    settings = parse(
        [], {**kafka[variables], "ODRADEK_CONTROL_HOST": "0.0.0.0"} if control else kafka[variables]
    )
    assert [topic.name for topic in settings.topics] == ["orders", "payments"]
    assert (settings.control is not None) is control
    assert settings.warnings == ()
    # The published ports are those on which the broker listens.
    listens = {
        port.rpartition(":")[2] for port in kafka[variables].get("KAFKA_LISTENERS", ":9092").split(",")
    }
    published = {port.partition(":")[2] for port in kafka.get("ports", ())}
    assert published <= listens | {kafka[variables].get("ODRADEK_CONTROL_PORT")}


@pytest.mark.parametrize(
    ("page", "user", "variable"),
    [
        ("docs/recipes/docker.md", "app", "BOOTSTRAP_SERVERS"),
        ("docs/recipes/kafka-ui.md", "ui", "KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"),
    ],
)
def test_another_service_comes_to_the_listener_inside(page: str, user: str, variable: str) -> None:
    services = yaml.safe_load(titled(page)["compose.yaml"])["services"]
    advertised = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"INSIDE://{services[user]['environment'][variable]}" in advertised
    assert services[user]["depends_on"]["kafka"] == {"condition": "service_healthy"}


@pytest.mark.parametrize(
    ("title", "example", "way"),
    [
        ("github.yaml", "github-actions.yaml", ("jobs", "test", "services")),
        (".gitlab-ci.yml", "gitlab-ci.yml", ("test", "services")),
    ],
)
def test_the_service_is_that_of_the_example(title: str, example: str, way: tuple[str, ...]) -> None:
    shown = yaml.safe_load(titled("docs/recipes/ci.md")[title])
    kept = yaml.safe_load((ROOT / "examples" / example).read_text("utf-8"))
    for key in way:
        shown, kept = shown[key], kept[key]
    assert shown == kept


def test_every_block_of_these_pages_is_known() -> None:
    known = {"console", "yaml"}
    for page in ("docs/recipes/ci.md", "docs/recipes/kafka-ui.md"):
        assert {block.language for block in blocks(page)} <= known


@pytest.mark.spark
def test_spark(spark: Any, kafka: Any) -> None:
    installed, conftest, test, run = blocks("docs/recipes/spark.md")
    assert conftest.text == 'pytest_plugins = ["odradek.spark.testing.fixtures"]\n'
    assert "\n$ pip install" in installed.text
    assert is_shown(run, f"pytest -q {test.title}")
    names: dict[str, Any] = {}
    exec(test.text, names)
    names["test_aborted_orders_do_not_count"](spark, kafka)


def is_shown(block: Block, command: str) -> bool:
    return block.language == "console" and block.text.startswith(f"$ {command}")
