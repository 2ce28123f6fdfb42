"""The examples run as their READMEs say."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from server.options import parse
from tests.support.deadlines import HANG_S

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_every_number_is_squared_once(start_broker):
    broker = start_broker(topics=["numbers:4", "squares:4"])
    command = [sys.executable, str(EXAMPLES / "exactly_once.py"), broker.bootstrap]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert result.stdout == "sum of squares: 328350, expected 328350\n", result.stderr


def test_every_example_is_listed():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.iterdir():
        assert path.name in listed or path.name in ("README.md", "__pycache__"), path.name


def environments(document: object) -> Iterator[dict[str, str]]:
    """The variables that a YAML file sets for the image: each mapping with our variables or Kafka's listeners."""
    if isinstance(document, dict):
        if {"ODRADEK_TOPICS", "KAFKA_LISTENERS"} & document.keys():
            yield {name: str(value) for name, value in document.items()}
        for value in document.values():
            yield from environments(value)
    elif isinstance(document, list):
        for value in document:
            yield from environments(value)


@pytest.mark.parametrize("name", ["compose.yaml", "github-actions.yaml", "gitlab-ci.yml"])
def test_the_variables_of_a_container_start_a_broker_without_a_warning(name: str):
    (variables,) = environments(yaml.safe_load((EXAMPLES / name).read_text("utf-8")))
    settings = parse([], {**variables, "ODRADEK_CONTROL_HOST": "0.0.0.0"})
    assert [topic.name for topic in settings.topics] == ["orders", "payments"]
    assert settings.control is not None
    assert settings.warnings == ()


def test_the_feature_of_a_development_container_is_sound():
    folder = EXAMPLES / "devcontainer" / "odradek"
    options = json.loads((folder / "devcontainer-feature.json").read_text("utf-8"))["options"]
    subprocess.run(["sh", "-n", folder / "install.sh"], check=True)
    used = re.findall(r"\$\{([A-Z]+):", (folder / "install.sh").read_text("utf-8"))
    assert {name.upper() for name in options} == set(used)
