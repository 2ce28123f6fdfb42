"""Odradek works after each kind of installation: its broker, its commands and its fixtures.

`make more` installs the wheel with `--no-deps` and links its dependencies from the test environment, without a network.
`make soak` installs it with pip, uv and pipx, and runs it with uvx, from the package index, in each Python of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from odradek.health import ask_api_versions
from tests.support.deadlines import TEST_S
from tests.support.wheels import built, copy_of_the_sources

pytestmark = pytest.mark.more

# The interpreter outside of the virtual environment, as a virtual environment has no user site.
BASE_PYTHON = Path(sys._base_executable)  # type: ignore[attr-defined]

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
WITH_IT = ("confluent-kafka", "pytest")

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
# Modules in the user's directory, with the names of packages of the server.
USERS_MODULES = ("broker", "storage", "protocol")
USERS_MODULE = "raise SystemExit('the server has imported a module of the user')\n"


@dataclass
class Install:
    """A Python in which Odradek is installed, and the environment variables that it needs."""

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
    """A wheel without the compiled core, which is built in seconds and works with every Python version."""
    sources = copy_of_the_sources(tmp_path_factory.mktemp("sources"))
    return built(sources, tmp_path_factory.mktemp("wheel"), ODRADEK_PURE="1")


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
    # Distributions protect their own Python (PEP 668). Nothing is written there, as each install has a directory of its own.
    environment = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", **variables}
    subprocess.run([*map(str, command)], env=environment, check=True, capture_output=True, timeout=TEST_S)


def link_dependencies(to: Path) -> None:
    """Link all packages of the test environment except Odradek."""
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
    """Install with `pip install --user`, which pip also does by itself if it may not write to site-packages."""
    variables = {"PYTHONUSERBASE": str(home / "user")}
    pip(BASE_PYTHON, "--user", wheel, **variables)
    [packages] = (home / "user").glob("lib/python3*/site-packages")
    link_dependencies(packages)
    return Install(BASE_PYTHON, variables)


def in_a_target(wheel: Path, home: Path) -> Install:
    """Install with `pip install --target`, as for cloud functions and vendored packages."""
    pip(BASE_PYTHON, "--target", home / "target", wheel)
    link_dependencies(home / "target")
    return Install(BASE_PYTHON, {"PYTHONPATH": str(home / "target")})


WAYS: dict[str, Callable[[Path, Path], Install]] = {
    "venv": in_a_virtual_environment,
    "user": for_the_user,
    "target": in_a_target,
}


@pytest.fixture(params=WAYS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Install:
    home = tmp_path / "a home with blanks"
    home.mkdir()
    return WAYS[request.param](wheel, home)


def check(installed: Install, project: Path) -> None:
    """Run a program, a test with a fixture and the server's commands, in a directory with modules of the user's own."""
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


def test_everything_works_from_there(installed: Install, tmp_path: Path):
    check(installed, tmp_path / "project")


# ---- From the package index


def pythons() -> dict[str, Path]:
    """The Python interpreters of this machine by version, including those of pyenv."""
    found: dict[str, Path] = {}
    for version in VERSIONS:
        candidates: list[str | Path | None] = [
            shutil.which(f"python{version}"),
            *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"),
        ]
        for candidate in candidates:
            if candidate is None:
                continue
            if subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
                found[version] = Path(candidate)
    return found


def with_pip(python: Path, wheel: Path, home: Path) -> Install:
    return _in_a_new_environment(python, home, lambda made: [made, "-m", "pip", "install"], wheel)


def with_uv(python: Path, wheel: Path, home: Path) -> Install:
    uv = _tool("uv", home)
    return _in_a_new_environment(python, home, lambda made: [uv, "pip", "install", "--python", made], wheel)


def with_pipx(python: Path, wheel: Path, home: Path) -> Install:
    """Install with pipx, and inject the packages that the program and the test need into its environment."""
    pipx = _tool("pipx", home)
    variables = {"PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin")}
    for command in (["install", "--python", python, wheel], ["inject", "odradek", *WITH_IT]):
        _run([pipx, *command], **variables)
    assert "serve" in Install(home / "bin" / "odradek").run(home, "--help")
    return Install(home / "pipx" / "venvs" / "odradek" / "bin" / "python")


def _in_a_new_environment(
    python: Path, home: Path, install: Callable[[Path], list[str | Path]], wheel: Path
) -> Install:
    _run([python, "-m", "venv", home / "venv"])
    made = home / "venv" / "bin" / "python"
    _run([*install(made), wheel, *WITH_IT])
    return Install(made)


def _tool(name: str, home: Path, *, of: str = "") -> Path:
    """Install a program from the package index, and return its path."""
    venv.create(home / "tools", with_pip=True)
    _run([home / "tools" / "bin" / "python", "-m", "pip", "install", of or name])
    return home / "tools" / "bin" / name


def _run(command: list[str | Path], **variables: str) -> None:
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TEST_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


INSTALLERS = {"pip": with_pip, "uv": with_uv, "pipx": with_pipx}


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    found = pythons().get(request.param)
    if found is None:
        pytest.skip(f"this machine has no Python {request.param}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("installer", INSTALLERS)
def test_it_installs_from_the_index(installer: str, python: Path, wheel: Path, tmp_path: Path):
    check(INSTALLERS[installer](python, wheel, tmp_path), tmp_path / "project")


@pytest.mark.slow
def test_uvx_serves_a_wheel_that_is_not_installed(python: Path, wheel: Path, tmp_path: Path):
    """``uvx --from WHEEL odradek serve`` starts a broker that serves clients, and SIGINT stops it with exit code 0."""
    command = [
        _tool("uvx", tmp_path, of="uv"),
        "--python",
        python,
        "--from",
        wheel,
        "odradek",
        "serve",
        "--port",
        "0",
    ]
    serving = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert serving.stdout is not None
        said = ""
        while '"start_ms"' not in said:
            line = serving.stdout.readline()
            assert line, said
            said += line
        [servers] = json.loads(line)["listeners"]
        assert ask_api_versions(servers.partition("://")[2]) > 0
        serving.send_signal(signal.SIGINT)
        rest, _ = serving.communicate(timeout=TEST_S)
        assert serving.returncode == 0, rest
    finally:
        serving.kill()
