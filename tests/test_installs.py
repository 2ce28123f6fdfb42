"""Each way in which people install Odradek: from each, the broker, the commands and the fixtures work.

The wheel is installed with `--no-deps`, and what it depends on is linked beside it: no network is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.deadlines import TEST_S
from tests.support.wheels import built, copy_of_the_sources

pytestmark = pytest.mark.more

# Not a virtual environment's, which has no user site.
BASE_PYTHON = Path(sys._base_executable)  # type: ignore[attr-defined]

PROGRAM = """
import odradek
from confluent_kafka import Producer

with odradek.Broker(topics=["orders:1"]) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", b"paid")
    assert producer.flush(60) == 0
    print(broker.transactions.list())
"""
TEST = """
def test_a_fixture(odradek_broker):
    assert odradek_broker.bootstrap_servers
"""
# What stands in the user's folder, under the names of the server's packages and of one that it depends on.
USERS_MODULES = ("broker", "storage", "protocol")
USERS_MODULE = "raise SystemExit('the server has imported a module of the user')\n"


@dataclass
class Install:
    """A Python in which Odradek was installed, and the variables that it needs."""

    python: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, folder: Path, *arguments: str) -> str:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
        }
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=folder,
            env={**inherited, **self.variables},
            capture_output=True,
            text=True,
            timeout=TEST_S,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(copy_of_the_sources(tmp_path_factory.mktemp("sources")), tmp_path_factory.mktemp("wheel"))


def pip(python: Path, *arguments: str | Path, **variables: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        *arguments,
    ]
    subprocess.run(
        [*map(str, command)], env={**os.environ, **variables}, check=True, capture_output=True, timeout=TEST_S
    )


def link_dependencies(to: Path) -> None:
    """All that the tests' environment has, but Odradek."""
    for entry in (
        entry for folder in sys.path if folder.endswith("-packages") for entry in Path(folder).iterdir()
    ):
        if "odradek" not in entry.name and entry.suffix != ".pth" and not (to / entry.name).exists():
            (to / entry.name).symlink_to(entry)


def in_a_virtual_environment(wheel: Path, home: Path) -> Install:
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    pip(python, wheel)
    [packages] = (home / "venv").glob("lib/python3*/site-packages")
    link_dependencies(packages)
    return Install(python)


def for_the_user(wheel: Path, home: Path) -> Install:
    """`pip install --user`, to which pip falls back by itself where it must not write."""
    variables = {"PYTHONUSERBASE": str(home / "user")}
    pip(BASE_PYTHON, "--user", wheel, **variables)
    [packages] = (home / "user").glob("lib/python3*/site-packages")
    link_dependencies(packages)
    return Install(BASE_PYTHON, variables)


def in_a_target(wheel: Path, home: Path) -> Install:
    """`pip install --target`, as layers of functions and vendored folders have it."""
    pip(BASE_PYTHON, "--target", home / "target", wheel)
    link_dependencies(home / "target")
    return Install(BASE_PYTHON, {"PYTHONPATH": str(home / "target")})


WAYS: dict[str, Callable[[Path, Path], Install]] = {
    "venv": in_a_virtual_environment,
    "user": for_the_user,
    "target": in_a_target,
}


@pytest.fixture(params=[(way, home) for way in WAYS for home in ("home", "a home with blanks")], ids=str)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Install:
    way, home = request.param
    (tmp_path / home).mkdir()
    return WAYS[way](wheel, tmp_path / home)


def test_everything_works_from_there(installed: Install, tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    for name in USERS_MODULES:
        (project / f"{name}.py").write_text(USERS_MODULE)
    (project / "program.py").write_text(PROGRAM)
    (project / "test_it.py").write_text(TEST)
    cli = ("-c", "from odradek.cli import main; main()")

    assert installed.run(project, "program.py") == "[]\n"
    assert "1 passed" in installed.run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert "--port" in installed.run(project, *cli, "serve", "--help")
    assert "--data-dir" in installed.run(project, *cli, "export", "--help")
    assert "--data-dir" in installed.run(project, *cli, "import", "--help")
