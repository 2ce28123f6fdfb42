"""The image, without a container engine: each RUN line of the Dockerfile in a clean virtual environment, then the
entry point as a container would start it.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.deadlines import HANG_S, TEST_S, Deadline

ROOT = Path(__file__).resolve().parents[1]
# So long does `docker stop` wait before it kills.
# The folders of the image that the Dockerfile fills; here they lie in a temporary one.
IMAGE_FOLDERS = ("/opt/odradek", "/etc/odradek", "/var/lib/kafka/data")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, rest), comments and continued lines resolved."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text("utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def those(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


@dataclass
class Image:
    """What a build leaves: files under a root of its own, and a Python with the package in it."""

    root: Path
    environment: Path

    def here(self, text: str) -> str:
        for folder in IMAGE_FOLDERS:
            text = text.replace(folder, f"{self.root}{folder}")
        return text

    def command(self, exec_form: str) -> list[str]:
        program, *arguments = json.loads(exec_form)
        return [str(self.environment / "bin" / program), *map(self.here, arguments)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image"), tmp_path_factory.mktemp("python"))
    venv.create(image.environment, with_pip=True)
    for name, rest in instructions():
        if name == "COPY":
            *names, destination = [word for word in shlex.split(rest) if not word.startswith("--")]
            for each in names:
                copy(
                    ROOT / each,
                    Path(image.here(destination)),
                    into=destination.endswith("/") or len(names) > 1,
                )
        elif name == "RUN":
            program, *arguments = shlex.split(image.here(rest))
            command = [str(image.environment / "bin" / program), *arguments]
            result = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S, check=False)
            assert result.returncode == 0, f"RUN {rest}\n{result.stdout}{result.stderr}"
    properties = Path(image.root, "etc/odradek/server.properties")
    properties.write_text(image.here(properties.read_text("utf-8")), "utf-8")
    return image


def copy(source: Path, destination: Path, *, into: bool) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, destination, dirs_exist_ok=True, ignore=ignored)
        return
    target = destination / source.name if into else destination
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


@contextmanager
def container(image: Image, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The entry point, with these variables and no others of ours."""
    (entry_point,) = those("ENTRYPOINT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))}
    process = subprocess.Popen(
        image.command(entry_point),
        env={**kept, **environ},
        cwd=image.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_healthy(image: Image, environ: Mapping[str, str], process: subprocess.Popen[str]) -> None:
    deadline = Deadline()
    while not health(image, environ):
        assert process.poll() is None, process.stdout and process.stdout.read()
        deadline.check("healthy")
        time.sleep(0.02)


def health(image: Image, environ: Mapping[str, str]) -> bool:
    (check,) = those("HEALTHCHECK")
    command = image.command(check.partition("CMD ")[2])
    return (
        subprocess.run(command, env={**os.environ, **environ}, capture_output=True, check=False).returncode
        == 0
    )


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


# The Dockerfile itself


def test_the_steps_are_so_plain_that_they_can_be_run_anywhere():
    assert those("FROM") == ["python:3.11-slim"]
    assert all(shlex.split(run)[:2] == ["pip", "install"] for run in those("RUN"))
    assert not any(re.search(r"[;&|<>$`]", run) for run in those("RUN"))
    assert {name for name, _ in instructions()} <= {
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "ENV",
        "VOLUME",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
    }


def test_the_broker_runs_as_an_unprivileged_user_and_owns_its_data():
    (user,) = those("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert f"--chown={user} docker/data /var/lib/kafka/data" in those("COPY")
    assert those("VOLUME") == ["/var/lib/kafka/data"]
    assert (ROOT / "docker/data").is_dir()


def test_port_health_check_and_entry_point_are_what_people_expect():
    assert those("EXPOSE") == ["9092"]
    (check,) = those("HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == ["odradek", "health"]
    (entry_point,) = those("ENTRYPOINT")
    assert json.loads(entry_point)[:2] == ["odradek", "serve"]


def test_everything_that_is_copied_is_there_and_sent_to_the_builder():
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split("\n")
    for line in those("COPY"):
        *names, _ = [word for word in shlex.split(line) if not word.startswith("--")]
        for name in names:
            assert (ROOT / name).exists(), name
            assert f"!{name}" in ignored or f"!{name.partition('/')[0]}" in ignored, name


# What is built from it


@pytest.mark.more
def test_one_name_can_be_imported_and_it_comes_from_the_image(image: Image):
    script = (
        "import odradek, pathlib; from importlib.util import find_spec;"
        "print(pathlib.Path(odradek.__file__).parent, *map(find_spec, ('broker', 'protocol', 'storage')))"
    )
    command = [str(image.environment / "bin" / "python"), "-I", "-c", script]
    where, *others = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert Path(where).is_relative_to(image.environment)
    assert others == ["None", "None", "None"]


@pytest.mark.more
def test_a_container_serves_localhost_and_ends_cleanly(image: Image):
    port = free_port()
    environ = {"KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{port}"}
    with container(image, environ) as process:
        wait_until_healthy(image, environ, process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, output
    assert f"localhost:{port}" in output
    assert any(Path(image.root, "var/lib/kafka/data").iterdir())


@pytest.mark.more
def test_the_advertised_listeners_come_by_variable_as_people_know_it(image: Image):
    port = free_port()
    environ = {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://kafka.test:{port}"}
    with container(image, environ) as process:
        wait_until_healthy(image, environ, process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, output
    assert f"kafka.test:{port}" in output


@pytest.mark.more
def test_a_bad_variable_ends_the_start_with_its_name(image: Image):
    with container(image, {"KAFKA_NUM_PARTITIONS": "many"}) as process:
        output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode not in (0, None)
    assert "the variable KAFKA_NUM_PARTITIONS" in output


@pytest.mark.more
def test_the_console_command_is_installed(image: Image):
    command = [str(image.environment / "bin" / "odradek"), "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("odradek ")
    assert sys.version_info >= (3, 11)
