"""The wheel: one importable name, and a server that works beside a user's own packages `broker`, `protocol` and `storage`.

The wheel is installed in a new environment, which borrows its dependencies from the environment of the tests.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from odradek.health import HealthError, ask_api_versions
from odradek.process import _free_port
from protocol.core import CORE, compiled
from tests.support.clients import ConfluentProducer, values
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.wheels import (
    COMPILED,
    PACKAGES,
    ROOT,
    built,
    copy_of_the_sources,
    is_of_python,
    run,
    types_of,
)

pytestmark = pytest.mark.more

SERVER = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools")

# A package of the user's that records in a file which processes have imported it.
USERS_PACKAGE = """
import os
with open({importers!r}, "a") as file:
    print(os.getpid(), file=file)
OWNER = "user"
"""
USERS_PROGRAM = """
import sys
import tarfile
import broker, protocol, storage
import odradek
from confluent_kafka import Consumer, Producer

with odradek.Broker(topics=["orders:1"]) as running:
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    producer.produce("orders", b"paid")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    record = consumer.poll(60)
    consumer.close()
print(broker.OWNER, protocol.OWNER, storage.OWNER, record.value().decode())
"""


def content(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def modules_of(wheel: Path) -> dict[str, bytes]:
    """The compiled modules of a wheel."""
    return {
        name: data
        for name, data in content(wheel).items()
        if "/compiled/modules/" in name and name.endswith(".so")
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pure_wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without compiled modules, whose compilation would take half a minute."""
    return built(sources, tmp_path_factory.mktemp("pure"), ODRADEK_PURE="1")


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution. Cython translates all modules for it, which takes ten seconds."""
    out = tmp_path_factory.mktemp("sdist")
    build = "import sys; from build_backend import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, out, cwd=sources)
    [sdist] = out.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def users_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    [site_packages] = environment.glob("lib/python3*/site-packages")
    # .pth files in a directory that was added by a .pth file are not read, so the checkout is not on the path.
    borrowed = [path for path in sys.path if path.endswith("-packages")]
    (site_packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return environment


@dataclass
class Project:
    """A user's directory, and a way to run programs from there."""

    folder: Path
    environ: dict[str, str]
    binaries: Path
    importers: Path


@pytest.fixture(params=["working directory", "PYTHONPATH", "site-packages"])
def project(request: pytest.FixtureRequest, users_environment: Path, tmp_path: Path) -> Iterator[Project]:
    """A project with packages named like the server's, in its working directory, on PYTHONPATH or in site-packages."""
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    [site_packages] = users_environment.glob("lib/python3*/site-packages")
    places = {"working directory": folder, "PYTHONPATH": elsewhere, "site-packages": site_packages}
    place = places[request.param]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = Project(folder, environ, users_environment / "bin", tmp_path / "importers")
    if request.param == "PYTHONPATH":
        made.environ["PYTHONPATH"] = str(elsewhere)
    folder.mkdir()
    (folder / "program.py").write_text(USERS_PROGRAM)
    for name in SERVER:
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(USERS_PACKAGE.format(importers=str(made.importers)))
    yield made
    for name in SERVER:
        shutil.rmtree(place / name)


# ---- the content of the wheel


def test_one_importable_name(wheel: Path):
    files = content(wheel)
    [metadata] = {name.partition("/")[0] for name in files} - {"odradek"}
    assert metadata.endswith(".dist-info")
    assert files[f"{metadata}/top_level.txt"].split() == [b"odradek"]


def is_of_the_core(place: str) -> bool:
    """Whether the path is a C source, a .pxd file or a compiled module, which differ between environments."""
    folders = ("/protocol/c/", "/protocol/compiled.cpython-", "/compiled/modules/")
    return place.endswith(".pxd") or any(each in f"/{place}" for each in folders)


def test_every_file_of_the_packages_is_there(wheel: Path):
    expected = {}
    for name in PACKAGES:
        for path in (path for path in (ROOT / name).rglob("*") if path.is_file()):
            place = path.relative_to(ROOT).as_posix()
            if "__pycache__" not in path.parts and not is_of_the_core(place):
                expected[place if name == "odradek" else f"odradek/_server/{place}"] = path.read_bytes()
    found = {name: data for name, data in content(wheel).items() if name.startswith("odradek/")}
    core = {name for name in found if is_of_the_core(name)}
    assert {name: data for name, data in found.items() if name not in core} == expected
    modules = {name for name in core if "/compiled/modules/" in name}
    assert len(core - modules) == (compiled is not None)
    assert len(modules) == (0 if compiled is None else sum(not is_of_python(path) for path in types_of(ROOT)))


def test_a_wheel_with_the_core_is_for_one_platform_and_its_server_finds_it(
    wheel: Path, users_environment: Path
):
    assert wheel.name.endswith("-py3-none-any.whl") == (compiled is None)
    said = run(users_environment / "bin" / "odradek", "--version").stdout
    expected = CORE if compiled is None else f"{CORE} and modules"
    assert said.endswith(f" ({expected})\n")
    core = (
        "import sys; sys.path.insert(0, sys.argv[1]); import storage; "
        "from compiled.finder import described; print(described())"
    )
    [server] = users_environment.glob("lib/python3*/site-packages/odradek/_server")
    assert run(users_environment / "bin" / "python", "-I", "-c", core, server).stdout == f"{expected}\n"


def test_without_a_compiler_the_wheel_is_pure_and_for_all(sources: Path, tmp_path: Path):
    wheel = built(sources, tmp_path, CC="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(is_of_the_core(name) for name in content(wheel))


def test_the_source_distribution_builds_the_same_wheel(
    pure_wheel: Path, sources: Path, sdist: Path, tmp_path: Path
):
    made = built(sdist, tmp_path / "out", ODRADEK_PURE="1")
    assert content(made) == content(pure_wheel)
    # The source distribution contains the sources of the compiled modules.
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    compiled_from = [*sources.glob("protocol/c/*"), *types_of(sources), sources / "build_backend.py"]
    assert {path.relative_to(sources).as_posix() for path in compiled_from} <= packed


def test_who_builds_from_the_source_distribution_needs_no_cython(
    sources: Path, sdist: Path, wheel: Path, tmp_path: Path
):
    """The build compiles the smallest module from its packed C file, and takes the others from the cache."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    asked = "import build_backend; print(build_backend.get_requires_for_build_wheel())"
    assert run(sys.executable, "-c", asked, cwd=sources).stdout == "['cython>=3.1,<4']\n"
    assert run(sys.executable, "-c", asked, cwd=unpacked).stdout == "[]\n"

    hidden = tmp_path / "hidden" / "Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('Cython was asked for')\n")
    expected = modules_of(wheel)
    smallest = min(expected.values(), key=len, default=b"")
    (kept := tmp_path / "kept").mkdir()
    for path in COMPILED.glob("*"):
        if path.read_bytes() != smallest:
            shutil.copy(path, kept)
    before = len([*kept.iterdir()])
    made = built(unpacked, tmp_path / "out", PYTHONPATH=str(hidden.parent), ODRADEK_KEPT=str(kept))
    assert len([*kept.iterdir()]) - before == (compiled is not None)
    assert modules_of(made).keys() == expected.keys()
    assert len(expected) == (
        0 if compiled is None else sum(not is_of_python(path) for path in types_of(ROOT))
    )
    assert not any("generated" in name for name in content(made))
    # A changed source needs Cython again.
    with (unpacked / "storage" / "room.py").open("a") as source:
        source.write("# changed\n")
    assert run(sys.executable, "-c", asked, cwd=unpacked).stdout == "['cython>=3.1,<4']\n"


def test_what_was_compiled_once_is_taken_by_the_next_build(sources: Path, wheel: Path, tmp_path: Path):
    """A second build from the sources from which the fixture `wheel` was built compiles nothing again."""
    kept = tmp_path / "kept"
    shutil.copytree(COMPILED, kept)
    before = {path: path.stat().st_mtime_ns for path in kept.glob("*")}
    # The C sources, which are generated when a module is compiled.
    shutil.rmtree(sources / "build" / "modules", ignore_errors=True)
    again = built(sources, tmp_path, ODRADEK_KEPT=str(kept))
    assert {path: path.stat().st_mtime_ns for path in kept.glob("*")} == before
    assert {*modules_of(wheel).values()} <= {path.read_bytes() for path in kept.glob("*")}
    assert not (sources / "build" / "modules").exists()
    assert modules_of(again) == modules_of(wheel)


def test_what_an_earlier_build_has_left_is_not_packed(pure_wheel: Path, sources: Path, tmp_path: Path):
    for left in ("broker", "odradek/_server/broker/apis", "odradek/_server/broker/faults"):
        (sources / "build" / "lib" / left).mkdir(parents=True, exist_ok=True)
        (sources / "build" / "lib" / left / "left_behind.py").write_text("")
    assert content(built(sources, tmp_path, ODRADEK_PURE="1")) == content(pure_wheel)


# ---- beside a user's packages of the same names


def test_a_program_imports_the_users_packages_and_its_broker_imports_its_own(project: Project):
    with subprocess.Popen(
        [project.binaries / "python", "program.py"],
        cwd=project.folder,
        env=project.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        said, complaints = program.communicate(timeout=TEST_S)
    assert program.returncode == 0, complaints
    assert said == "user user user paid\n"
    assert {*project.importers.read_text().split()} == {str(program.pid)}


def test_the_commands_import_none_of_the_users_packages(project: Project):
    port = _free_port()
    where: dict[str, Any] = {"cwd": project.folder, "env": project.environ}
    odradek = project.binaries / "odradek"
    command: list[str | Path] = [
        odradek,
        "serve",
        "--port",
        str(port),
        "--data-dir",
        "data",
        "--topic",
        "orders:1",
    ]
    with (project.folder / "log").open("wb") as log:
        process = subprocess.Popen(command, **where, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until_it_answers(f"127.0.0.1:{port}", process, project.folder / "log")
        producer = ConfluentProducer(f"127.0.0.1:{port}")
        producer.send("orders", ["paid"])
        producer.close()
        assert values(f"127.0.0.1:{port}", "orders") == ["paid"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
    run(odradek, "export", "--data-dir", "data", "exported", **where)
    copied = project.folder / "exported" / "orders-0"
    run(odradek, "import", "--data-dir", "imported", copied, **where)
    assert not project.importers.exists()


def test_the_sink_of_an_executor_meets_none_of_the_users_packages(project: Project):
    """The sink in an executor imports `odradek._protocol` and none of the user's packages."""
    asked = "import sys; from odradek.spark.wire import Cluster; print(sys.modules['odradek._protocol.codec'].__file__)"
    said = run(project.binaries / "python", "-c", asked, cwd=project.folder, env=project.environ).stdout
    assert said.endswith("/odradek/_server/protocol/codec.py\n")
    assert not project.importers.exists()


def wait_until_it_answers(bootstrap: str, process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        with contextlib.suppress(HealthError):
            ask_api_versions(bootstrap)
            return
    raise AssertionError(log.read_text())


# ---- the directory for machines without Python


def test_the_folder_has_its_own_python_and_no_other_is_needed(users_environment: Path, tmp_path: Path):
    """The directory that `release/folder.py` makes contains a Python. It works after a move, and needs only the
    machine's C library."""
    python = users_environment / "bin" / "python"
    run(python, ROOT / "release" / "folder.py", tmp_path / "made")
    moved = (tmp_path / "made").rename(tmp_path / "moved")
    said = run(
        *("env", "-i", "PATH=/bin:/usr/bin", moved / "odradek", "--version"),
        cwd="/",
    ).stdout
    assert said.startswith("odradek ")
    found = "import sys, odradek; print(sys.prefix, odradek.__file__)"
    library = {"LD_LIBRARY_PATH": str(moved / "lib")}
    [interpreter] = (moved / "bin").iterdir()
    where = run(interpreter, "-I", "-c", found, env=library).stdout.split()
    assert all(Path(each).is_relative_to(moved) for each in where)
    names = {path.name for path in (moved / "lib").glob("*/site-packages/*")}
    assert not {"pip", "setuptools", "Cython"} & names


def test_a_module_that_was_translated_is_translated_again(tmp_path: Path) -> None:
    translate = "import build_backend as b; [m] = [m for m in b.hot_modules() if m.name == 'storage.room']"
    run(
        sys.executable,
        "-c",
        f"{translate}; b.translated(m); b.translated(m)",
        cwd=copy_of_the_sources(tmp_path),
    )
