"""The examples for Go and Node, and the recipes for Go, Node and JUnit 5: in each a fault rule drops a response.

A recipe is run as documented: its commands in an empty folder, with the files that the page shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks, titled
from tests.docs.terminal import Terminal
from tests.support.deadlines import TEST_S
from tests.support.foreign import GO_ENVIRONMENT, NPM_ENVIRONMENT, go_tests, node_folder, tool_or_skip

pytestmark = pytest.mark.foreign

EXAMPLES = Path(__file__).parents[2] / "examples"


def passes(command: list[str | Path], folder: Path) -> str:
    """Run a command that must succeed, with `odradek` of this environment on PATH; return its output."""
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


@pytest.mark.parametrize(
    ("page", "program", "environment"),
    [
        ("docs/recipes/junit.md", "mvn", {}),
        ("docs/recipes/go.md", "go", GO_ENVIRONMENT),
        ("docs/recipes/node.md", "npm", NPM_ENVIRONMENT),
    ],
)
def test_a_recipe_typed_in_an_empty_folder(
    page: str, program: str, environment: dict[str, str], tmp_path: Path
) -> None:
    tool_or_skip(program)
    project, temporary = tmp_path / "payments", tmp_path / "temporary"
    project.mkdir()
    temporary.mkdir()
    # Go refuses a module in the system's folder for temporary files.
    variables: dict[str, Any] = {"TMPDIR": str(temporary), **environment}
    with Terminal(project, **variables) as terminal:
        for block in blocks(page):
            terminal.take(block)


@pytest.mark.parametrize(
    ("page", "file", "example"),
    [
        ("docs/recipes/junit.md", "src/test/java/org/example/Odradek.java", "java/Odradek.java"),
        ("docs/recipes/go.md", "odradek/odradek.go", "go/odradek.go"),
        ("docs/recipes/node.md", "odradek.mjs", "node/odradek.mjs"),
    ],
)
def test_a_recipe_has_the_file_of_the_example(page: str, file: str, example: str) -> None:
    assert titled(page)[file] == (EXAMPLES / example).read_text("utf-8")
