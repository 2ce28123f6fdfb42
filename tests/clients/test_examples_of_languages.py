"""The examples for Go, Node and JUnit 5, as a user copies them: each starts a broker, loses an answer, resets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import TEST_S
from tests.support.foreign import go_tests, node_folder
from tests.support.java import jars_folder, java, kafka_classpath
from tests.support.javaprog import JVM_OPTIONS, compiled

pytestmark = pytest.mark.foreign

EXAMPLES = Path(__file__).parents[2] / "examples"
JUNIT = "org.junit.platform:junit-platform-console-standalone:1.13.4"


def passes(command: list[str | Path], folder: Path) -> str:
    """What it printed, with `odradek` of this environment on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TEST_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_go() -> None:
    binary = go_tests(EXAMPLES / "go")
    said = passes([binary, "-test.v"], EXAMPLES / "go")
    assert said.count("--- PASS") == 2


def test_node() -> None:
    folder = node_folder(EXAMPLES / "node")
    node = shutil.which("node")
    assert node is not None
    assert "# pass 2" in passes([node, "--test"], folder)


def test_junit() -> None:
    jars = f"{jars_folder('junit-platform-console', JUNIT)}/*{os.pathsep}{kafka_classpath()}"
    programs = compiled(EXAMPLES / "java", jars)
    console = [
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--select-class",
        "PaymentsTest",
        "--disable-banner",
    ]
    options = "-Dodradek.options=--topic orders:1"
    said = passes([java(), *JVM_OPTIONS, options, "-cp", programs, *console], EXAMPLES / "java")
    assert "2 tests successful" in said
