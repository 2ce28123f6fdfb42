"""The examples and recipes for Go, Node and JUnit 5, as a user copies them: each starts a broker, and loses an answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, titled
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
    assert "2 tests successful" in run_by_junit(EXAMPLES / "java", "--topic orders:1")


def run_by_junit(folder: Path, broker_options: str) -> str:
    jars = f"{jars_folder('junit-platform-console', JUNIT)}/*{os.pathsep}{kafka_classpath()}"
    programs = compiled(folder, jars)
    console = [
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--select-class",
        "PaymentsTest",
        "--disable-banner",
    ]
    options = f"-Dodradek.options={broker_options}"
    return passes([java(), *JVM_OPTIONS, options, "-cp", programs, *console], folder)


# ---- The pages of docs/recipes/ show one file each, beside the one of the example.


def save(page: str, folder: Path, *beside: Path) -> dict[str, str]:
    """A page's files in a folder, with those of the example that the page says to copy."""
    files = titled(page)
    for name, text in files.items():
        (folder / name).write_text(text)
    for file in beside:
        shutil.copy(file, folder)
    assert {block.title for block in blocks(page) if not block.not_run} == files.keys()
    return files


def test_the_recipe_for_go(tmp_path: Path) -> None:
    copied = (EXAMPLES / "go" / name for name in ("odradek.go", "go.mod", "go.sum"))
    save("docs/recipes/go.md", tmp_path, *copied)
    assert passes([go_tests(tmp_path), "-test.v"], tmp_path).count("--- PASS") == 1


def test_the_recipe_for_node(tmp_path: Path) -> None:
    save("docs/recipes/node.md", tmp_path, EXAMPLES / "node" / "odradek.mjs")
    (tmp_path / "node_modules").symlink_to(node_folder(EXAMPLES / "node") / "node_modules")
    node = shutil.which("node")
    assert node is not None
    assert "# pass 2" in passes([node, "--test"], tmp_path)


def test_the_recipe_for_junit(tmp_path: Path) -> None:
    files = save("docs/recipes/junit.md", tmp_path, EXAMPLES / "java" / "Odradek.java")
    options = ElementTree.fromstring(files["pom.xml"]).findtext(".//odradek.options")
    assert options is not None
    assert "1 tests successful" in run_by_junit(tmp_path, options)
