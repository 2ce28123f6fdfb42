"""The image, tested without a container engine and without root: each RUN line of the Dockerfile, then the entry point,
with the paths of the image moved to a temporary directory. `tests/clients/test_testcontainers.py` runs the image as a
container."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from odradek.cli import main as odradek_command
from tests.support.deadlines import HANG_S, TEST_S, Deadline
from tests.support.dockerfile import OF_THE_SYSTEM, ROOT, Copy, stages
from tests.support.wheels import QUICK, compiling

TREE = ROOT / "docker" / "image"
DEPENDENCIES, BUILD, NATIVE, LAST = stages()
MEGABYTE = 1_000_000
# The directories of the image that its scripts mention.
IMAGE_FOLDERS = (
    "/opt/build",
    "/opt/built",
    "/opt/odradek",
    "/opt/bitnami",
    "/opt/kafka",
    "/opt/programs",
    "/etc/odradek",
    "/etc/confluent",
    "/etc/kafka",
    "/mnt/shared",
    "/usr/local/bin/odradek",
    "/var/lib/kafka",
)
# The ignored files in the directories that are sent to the builder.
IGNORED = [
    line.removeprefix("**/").rpartition("/")[2]
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    if line and line[0] not in "#!" and line != "*"
]


def tree_files() -> list[Path]:
    return sorted(path for path in TREE.rglob("*") if path.is_file() and path.name != ".gitkeep")


def names(start: bytes) -> list[str]:
    """The files of the image's tree whose content begins with these bytes."""
    return [path.relative_to(TREE).as_posix() for path in tree_files() if path.read_bytes().startswith(start)]


PROGRAMS = names(b"#!")
SOURCED = "etc/confluent/docker/bash-config"
SHELL_SCRIPTS = [*names(b"#!/bin/sh\n"), SOURCED]


@dataclass
class Image:
    """The result of a build: files in a root directory of its own, including a Python environment with the package."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))
        }
        return {**kept, "PATH": f"{self.root}/usr/local/bin:{self.root}/usr/bin:{os.environ['PATH']}"}

    def here(self, text: str) -> str:
        for folder in IMAGE_FOLDERS:
            text = re.sub(rf"(?<![\w/]){folder}\b", f"{self.root}{folder}", text)
        return text.replace("/src", f"{self.root}/src")

    def command(self, instruction: str) -> list[str]:
        program, *arguments = LAST.exec_form(instruction)
        return [str(self.root / "usr/local/bin" / program), *map(self.here, arguments)]

    def run(self, line: str) -> None:
        # A cache directory that builds of the image share: here it is the one of all tests.
        line = re.sub(r"--mount=\S+ ", "", line)
        if OF_THE_SYSTEM.match(line):
            return
        program, *arguments = shlex.split(self.here(line))
        command = [sys.executable if program == "python" else program, *arguments]
        environ = {**os.environ, **QUICK}
        with compiling():
            result = subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=TEST_S, check=False
            )
        assert result.returncode == 0, f"RUN {line}\n{result.stdout}{result.stderr}"

    def copy(self, instruction: Copy) -> None:
        if instruction.stage:  # in this test all stages have the same root
            [name], inside = instruction.sources, instruction.destination
            if name != inside and not OF_THE_SYSTEM.match(name):
                shutil.copytree(self.here(name), f"{self.root}{inside}", symlinks=True, dirs_exist_ok=True)
            return
        for source, destination in instruction.files(ROOT):
            target = Path(f"{self.root}{destination}")
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = shutil.ignore_patterns(*IGNORED)
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy(source, target)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image"))
    for stage in (DEPENDENCIES, BUILD, NATIVE, LAST):
        for name, rest in stage.instructions:
            if name == "COPY":
                image.copy(Copy.parse(rest))
            elif name == "RUN":
                image.run(rest)
    for path in tree_files():
        file = image.root / path.relative_to(TREE)
        file.write_text(image.here(file.read_text("utf-8")), "utf-8")
    return image


@contextmanager
def container(image: Image, environ: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the image's entry point with only the image's environment variables and those in ``environ``."""
    process = subprocess.Popen(
        [*image.command("ENTRYPOINT"), *arguments],
        env={**image.environ, **environ},
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
    done = subprocess.run(
        image.command("HEALTHCHECK"), env={**image.environ, **environ}, capture_output=True, check=False
    )
    return done.returncode == 0


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


# The Dockerfile itself


def test_the_steps_are_so_plain_that_they_can_be_run_anywhere():
    # The stages use the same Python at the same path, with a compiler and without.
    bases = [stage.base for stage in (DEPENDENCIES, BUILD, NATIVE, LAST)]
    assert bases == ["python:3.11", "dependencies", "python:3.11", "python:3.11-slim"]
    for stage in (DEPENDENCIES, BUILD, NATIVE):
        runs = [run for run in stage.those("RUN") if not OF_THE_SYSTEM.match(run)]
        assert not any(re.search(r"[;&|<>$`]", run) for run in runs)
        assert {name for name, _ in stage.instructions} == {"COPY", "RUN"}
    assert {name for name, _ in LAST.instructions} <= {
        "LABEL",
        "COPY",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
    }


def test_the_broker_runs_as_an_unprivileged_user_and_any_user_can_write_its_data():
    """The image's user is unprivileged, and any user can write the data directory. OpenShift runs the image with
    the user id of a project and the group 0. Others run it with `--user`, or mount a tmpfs as the data directory."""
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", LAST.one("USER"))
    user = int(LAST.one("USER").partition(":")[0])
    copies = {copy.destination: copy for copy in map(Copy.parse, LAST.those("COPY"))}
    data = copies["/var/lib"]
    assert (data.owner, data.mode) == ((user, 0), 0o2777)
    for folder in (LAST.one("WORKDIR"), LAST.one("VOLUME")):
        assert (TREE / folder.lstrip("/")).is_dir()
        assert Path(folder).is_relative_to("/var/lib")
    assert LAST.one("VOLUME") == "/var/lib/kafka/data"


def test_the_umask_of_the_checkout_does_not_matter():
    """Each COPY from the checkout sets the mode. Otherwise the image's user could not read files that only their owner
    may read in the checkout."""
    modes = {Copy.parse(line).mode for line in LAST.those("COPY") if "--from" not in line}
    assert modes == {0o755, 0o775, 0o2777}


def test_a_change_of_code_leaves_the_layers_of_the_dependencies_as_they_are():
    """The layers of the dependencies are built from the lock file alone, and the code is in the last layer of the image."""
    assert DEPENDENCIES.those("COPY") == ["requirements /src/requirements"]
    copies = [line for line in LAST.those("COPY") if "--from" in line and "=programs" not in line]
    assert copies == ["--from=dependencies /opt/odradek /opt/odradek", "--from=build /opt/built /opt/odradek"]
    assert LAST.those("COPY")[-1] == copies[-1]


def test_the_labels_say_what_is_in_it():
    labels = dict(label.split("=", 1) for label in shlex.split(LAST.one("LABEL")))
    prefix = "org.opencontainers.image."
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert labels[f"{prefix}description"] == project["description"]
    assert labels[f"{prefix}licenses"] == project["license"]
    assert labels[f"{prefix}base.name"].endswith(LAST.base)


def test_port_health_check_and_entry_point_are_what_people_expect():
    assert LAST.one("EXPOSE") == "9092"
    assert LAST.exec_form("HEALTHCHECK") == ["odradek-image", "health"]
    assert LAST.exec_form("ENTRYPOINT") == ["odradek-image", "hold", "odradek-container"]
    assert LAST.one("ENV") == "PATH=$PATH:/opt/kafka/bin"


def test_a_broker_that_ended_or_hangs_is_unhealthy_within_25_s():
    """A health check fails at most 25 s after the broker has ended or hangs. The interval begins at the end of the last
    check, and each check waits for a limited time."""
    options = dict(re.findall(r"--([a-z-]+)=(\d+)", LAST.one("HEALTHCHECK")))
    source = (ROOT / "docker/src/odradek-image.c").read_text("utf-8")
    [patience_s] = map(int, re.findall(r"#define PATIENCE_S (\d+)", source))
    assert int(options["retries"]) * (int(options["interval"]) + patience_s) <= 25
    assert int(options["timeout"]) > patience_s
    assert options["start-interval"] == "500"  # ms


def test_everything_that_is_copied_is_there_and_sent_to_the_builder():
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split("\n")
    for line in (line for stage in (DEPENDENCIES, BUILD, NATIVE, LAST) for line in stage.those("COPY")):
        copy = Copy.parse(line)
        for name in () if copy.stage else copy.sources:
            assert (ROOT / name).exists(), name
            assert f"!{name}" in ignored or f"!{name.partition('/')[0]}" in ignored, name


def test_every_file_of_the_tree_is_copied_to_its_place():
    copied = [Copy.parse(line) for line in LAST.those("COPY")]
    folders = {source for copy in copied for source in copy.sources if not copy.stage}
    for copy in copied:
        assert copy.stage or copy.sources == (f"docker/image{copy.destination}",), copy
    for path in tree_files():
        assert any(path.is_relative_to(ROOT / folder) for folder in folders), path


# The scripts of the image


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_a_script_is_sound_in_each_shell(script: str):
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n", str(TREE / script)], check=True, capture_output=True)


def test_scripts_can_be_executed_wherever_git_puts_them():
    listed = subprocess.run(
        ["git", "ls-files", "--stage", "docker/image"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    modes = {line.partition("\t")[2]: line[:6] for line in listed.splitlines()}
    executable = {f"docker/image/{program}" for program in PROGRAMS}
    assert {path for path, mode in modes.items() if mode == "100755"} == executable


# The scripts that the Testcontainers modules of the four languages run in their containers.
@pytest.mark.parametrize(
    "called",
    [
        "etc/kafka/docker/run",
        "etc/confluent/docker/bash-config",
        "etc/confluent/docker/configure",
        "etc/confluent/docker/ensure",
        "etc/confluent/docker/launch",
        "etc/confluent/docker/run",
        "usr/bin/kafka-configs",
        "usr/bin/kafka-storage",
        "usr/bin/rpk",
        "usr/bin/zookeeper-server-start",
    ],
)
def test_what_a_testcontainers_module_calls_is_there(called: str):
    assert called in {*PROGRAMS, SOURCED}


def test_each_of_kafkas_tools_is_there_by_both_of_its_names():
    apache = {path.removesuffix(".sh") for path in os.listdir(TREE / "opt/kafka/bin")}
    confluent = {path for path in os.listdir(TREE / "usr/bin") if path.startswith("kafka-")}
    assert apache == confluent


def test_the_entry_point_knows_every_command_of_odradek():
    script = (TREE / "usr/local/bin/odradek-container").read_text("utf-8")
    known, _ = re.findall(r'^ +([a-z -|]+)\) exec odradek "\$@"', script, re.MULTILINE)
    assert isinstance(odradek_command, click.Group)
    visible = {name for name, command in odradek_command.commands.items() if not command.hidden}
    assert {"serve", *known.split(" | ")} == visible


def said(script: str, *arguments: str, **environ: str) -> str:
    """Return the output of a script of the image's tree.

    The programs that the script calls are replaced by stand-ins, which print their command lines.
    """
    path = f"{ROOT / 'tests/support/echo'}:{TREE}/usr/local/bin:{TREE}/usr/bin:{os.environ['PATH']}"
    command = ["sh", str(TREE / script), *arguments]
    done = subprocess.run(command, env={**environ, "PATH": path}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


SERVE = "odradek serve"


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ((), SERVE),
        (("serve",), SERVE),
        (("odradek", "serve", "--nodes", "3"), f"{SERVE} --nodes 3"),
        (("--port", "9095"), f"{SERVE} --port 9095"),
        (("--topic", "orders:4:segment.ms=60000"), f"{SERVE} --topic orders:4:segment.ms=60000"),
        (("num.partitions=4", "broker.rack=a=b"), f"{SERVE} --set num.partitions=4 --set broker.rack=a=b"),
        (("listeners=PLAINTEXT://:1",), f"{SERVE} --set listeners=PLAINTEXT://:1"),
        (("num.partitions=4", "--topic", "a:1:b=c"), f"{SERVE} --set num.partitions=4 --topic a:1:b=c"),
        (("proxy", "--upstream", "k:1"), "odradek proxy --upstream k:1"),
        (("reset",), "odradek reset"),
        (("fault", "list"), "odradek fault list"),
        (("odradek", "health"), "odradek health"),
        (("--version",), "odradek --version"),
        (("help",), "odradek help"),
        (("odradek",), "odradek help"),
        # Neither a program nor a command, so odradek suggests the nearest command.
        (("topics", "list"), "odradek topics list"),
        (("sh", "-c", "echo $0"), "odradek-image run sh -c echo $0"),
        (("echo", "a b"), "odradek-image run echo a b"),
    ],
)
def test_the_entry_point_starts_what_it_is_given(arguments: tuple[str, ...], called: str):
    assert said("usr/local/bin/odradek-container", *arguments) == called


@pytest.mark.parametrize("name", ["etc/odradek", "mnt/shared/config"])
def test_a_file_of_the_user_is_read(name: str, tmp_path: Path):
    file = tmp_path / name / "server.properties"
    file.parent.mkdir(parents=True)
    file.touch()
    script = (TREE / "usr/local/bin/odradek-container").read_text("utf-8")
    moved = tmp_path / "odradek-container"
    moved.write_text(script.replace(f"/{name}/", f"{file.parent}/"))
    assert said(str(moved), "--nodes", "3") == f"{SERVE} --config {file} --nodes 3"


IMAGE_SERVE = (
    "odradek-image start PYTHON serve "
    "--default listeners=PLAINTEXT://0.0.0.0:9092 --default log.dirs=/var/lib/kafka/data"
)


@pytest.mark.parametrize(
    ("words", "called"),
    [
        ("serve", IMAGE_SERVE),
        ("serve --port 9095", f"{IMAGE_SERVE} --port 9095"),
        ("proxy --upstream k:1", "odradek-image start PYTHON proxy --host 0.0.0.0 --upstream k:1"),
        ("health", "odradek-image health"),
        ("health -b other:9092", "PYTHON health -b other:9092"),
        ("fault list", "PYTHON fault list"),
        ("", "PYTHON"),
    ],
)
def test_the_command_of_the_image_starts_a_broker_of_the_image(words: str, called: str, tmp_path: Path):
    """``odradek serve`` in the image starts a broker with the image's settings, which have the lowest precedence: below
    files, variables and options."""
    assert said(command_of_the_image(tmp_path), *words.split()).replace(f"{tmp_path}/", "") == called


def command_of_the_image(folder: Path) -> str:
    """The image's command, with a program that prints its arguments in place of Python's."""
    python = folder / "PYTHON"
    shutil.copy(ROOT / "tests/support/echo/odradek", python)
    moved = folder / "odradek"
    script = (TREE / "usr/local/bin/odradek").read_text("utf-8")
    moved.write_text(script.replace("/opt/odradek/bin/odradek", str(python)))
    return str(moved)


@pytest.mark.parametrize(
    ("environ", "host"), [({}, "0.0.0.0"), ({"ODRADEK_CONTROL_HOST": "10.0.0.1"}, "10.0.0.1")]
)
def test_the_control_port_of_a_proxy_is_for_other_machines(
    environ: dict[str, str], host: str, tmp_path: Path
):
    lines = said(command_of_the_image(tmp_path), "proxy", ODRADEK_ECHO="ODRADEK_CONTROL_HOST", **environ)
    assert lines.splitlines()[0] == f"ODRADEK_CONTROL_HOST={host}"


def test_the_listeners_of_rpk_become_those_of_the_broker():
    script = TREE / "usr/bin/rpk"
    line = "--mode dev --kafka-addr A://0.0.0.0:1,B://0.0.0.0:2 --advertise-kafka-addr A://x:1,B://y:3"
    called = said("usr/bin/rpk", "redpanda", "start", *line.split(), ODRADEK_ECHO="KAFKA_")
    assert script.name == "rpk"
    assert called.splitlines() == [
        "KAFKA_ADVERTISED_LISTENERS=A://x:1,B://y:3",
        "KAFKA_INTER_BROKER_LISTENER_NAME=A",
        "KAFKA_LISTENERS=A://0.0.0.0:1,B://0.0.0.0:2",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=A:PLAINTEXT,B:PLAINTEXT",
        SERVE,
    ]


def test_a_cluster_id_of_kafka_storage_is_one_of_kafkas():
    made = {said("opt/kafka/bin/kafka-storage.sh", "random-uuid") for _ in range(8)}
    assert len(made) == 8
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in made)
    assert "Nothing to format" in said("opt/kafka/bin/kafka-storage.sh", "format", "-t", made.pop())


# The built image


@pytest.mark.more
def test_it_has_what_a_broker_needs_and_adds_60_mb_at_most(image: Image):
    root = image.root / "opt/odradek"
    [packages] = root.glob("lib/python3*/site-packages")
    there = {path.name.lower() for path in packages.iterdir()}
    assert not {"cython", "kio", "pip", "setuptools", "wheel"} & there
    assert {"odradek", "cryptography", "jwt", "opentelemetry"} <= there
    copied = [Path(f"{image.root}{Copy.parse(line).destination}") for line in LAST.those("COPY")]
    files = {
        path for folder in copied for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    assert not [path for path in files if path.name == ".gitkeep"]
    # The compiler of the tests does not optimise, so its modules are twice as large.
    assert sum(path.stat().st_size for path in files) < 64 * MEGABYTE


@pytest.mark.more
def test_one_name_can_be_imported_and_it_comes_from_the_image(image: Image):
    script = (
        "import odradek, pathlib; from importlib.util import find_spec;"
        "print(pathlib.Path(odradek.__file__).parent, *map(find_spec, ('broker', 'protocol', 'storage')))"
    )
    command = [f"{image.root}/opt/odradek/bin/python", "-I", "-c", script]
    where, *others = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert Path(where).is_relative_to(image.root / "opt/odradek")
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
def test_arguments_are_options_or_settings_or_commands(image: Image):
    environ = {"KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{free_port()}"}
    with container(image, environ, "num.partitions=many") as process:
        output, _ = process.communicate(timeout=HANG_S)
    assert "num.partitions" in output
    with container(image, {}, "topics", "list") as process:
        output, _ = process.communicate(timeout=HANG_S)
    assert "No such command 'topics'" in output
    for words in (["--version"], ["odradek", "--version"]):
        with container(image, {}, *words) as process:
            output, _ = process.communicate(timeout=HANG_S)
        assert (process.returncode, output.startswith("odradek ")) == (0, True)


@pytest.mark.more
def test_a_file_where_apache_kafka_has_it_replaces_ours(image: Image):
    mounted = Path(image.root, "mnt/shared/config/server.properties")
    mounted.parent.mkdir(parents=True)
    mounted.write_text("num.partitions=many\n")
    with container(image, {}) as process:
        output, _ = process.communicate(timeout=HANG_S)
    mounted.unlink()
    assert f"the file {mounted}" in output
