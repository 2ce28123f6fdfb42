"""Functions that build and run programs in other languages (``tests/clients``), and install Python packages for tests.

    program = Program(go_program("franz"))
    seen = program.run("read", broker.bootstrap, "orders", "group", "read_committed", 3)
    with program.start("member", broker.bootstrap, "orders", "group") as member:
        member.expect("assigned", [0, 1, 2])

A program writes one line of JSON for each event. A program that has to wait for its test reads a line (or the end) of
its standard input. Where Go, Node or Rust or their packages are missing, the tests are skipped with the reason; in CI
they fail.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NoReturn

import pytest

from tests.support.deadlines import HANG_S, TEST_S

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
CACHE = Path(__file__).resolve().parents[2] / ".cache"
NODE_VERSION_MIN = 20
# For modules and packages that the commands of a documentation page download: use the caches of this checkout.
GO_ENVIRONMENT = {
    "GOTOOLCHAIN": "local",
    "GOMODCACHE": str(CACHE / "go" / "modules"),
    "GOCACHE": str(CACHE / "go" / "build"),
    # `go get` looks up each prefix of a package's path. Without `direct`, a prefix that the proxy does not have is not
    # looked up by git on a host that may not respond.
    "GOPROXY": os.environ.get("GOPROXY", "https://proxy.golang.org").removesuffix(",direct"),
    # Do not reuse test results of earlier runs.
    "GOFLAGS": "-modcacherw -count=1",
}
NPM_ENVIRONMENT = {"npm_config_cache": str(CACHE / "npm")}


class Unavailable(Exception):
    """A language, a tool or a package that a test needs is missing. The text says in one line what is missing or failed."""


def go_program(name: str, sources: Path = CLIENTS / "go") -> list[str]:
    """Command line of a program of a Go module. Skips the test if the module cannot be built."""
    return [str(_or_skip(lambda: _go_programs(sources)) / name)]


def node_program(name: str, sources: Path = CLIENTS / "node", *, compiles: bool = False) -> list[str]:
    """Command line of a program in a folder with a package.json.

    ``compiles`` is true if one of its packages is compiled from source.
    """
    folder = _or_skip(lambda: _node_programs(sources, compiles=compiles))
    return [_tool("node"), str(folder / f"{name}.js")]


def rust_program(name: str, sources: Path = CLIENTS / "rust") -> list[str]:
    """Command line of a binary of a Rust package. Skips the test if the package cannot be built."""
    return [str(_or_skip(lambda: _rust_programs(sources)) / name)]


def go_tests(sources: Path) -> Path:
    """The compiled test binary of a Go module that consists of one package."""
    return _or_skip(lambda: _go_programs(sources, tests=True)) / "tests"


def node_folder(sources: Path) -> Path:
    """A copy of a folder with a package.json, with its packages installed."""
    return _or_skip(lambda: _node_programs(sources))


def python_packages(*requirements: str) -> Path:
    """A folder for PYTHONPATH with these packages and their dependencies, which the tests' own environment lacks."""
    return _or_skip(lambda: _python_packages(requirements))


def tool_or_skip(name: str) -> str:
    """Path of a program on PATH. Skips the test if it is not installed."""
    try:
        return _tool(name)
    except Unavailable as missing:
        _skip(missing)


def _or_skip(build: Callable[[], Path | Unavailable]) -> Path:
    built = build()
    if isinstance(built, Unavailable):
        _skip(built)
    return built


def _skip(missing: Unavailable) -> NoReturn:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))


# ---- building


@contextlib.contextmanager
def _built_once(name: str, sources: Sequence[Path], *also: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield (folder of the finished build, folder in which to build now; None if the build already exists).

    At the end of the block the second folder is renamed to the first.
    """
    digest = hashlib.sha256("\0".join(also).encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = CACHE / f"{name}-programs" / digest.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield folder, None
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            yield folder, new
            new.rename(folder)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"needs {name}, which is not on PATH")
    return found


def _build(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=TEST_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{' '.join(map(str, command[:2]))} failed: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(map(str, command[:2]))} failed: {error}") from error


# A failed attempt is cached too, so that the tests of a process make only one.
@cache
def _go_programs(sources: Path, *, tests: bool = False) -> Path | Unavailable:
    # GOTOOLCHAIN=local: Go would otherwise download the release that the modules ask for.
    environment = {
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(CACHE / "go" / "modules"),
        "GOCACHE": str(CACHE / "go" / "build"),
        "GOFLAGS": "-modcacherw",
        "CGO_ENABLED": "0",
        "GOWORK": "off",
    }
    try:
        go = _tool("go")
        version = subprocess.run(
            [go, "env", "GOVERSION"], env={**os.environ, **environment}, capture_output=True
        )
        _check_go(version.stdout.decode().strip(), (sources / "go.mod").read_text())
        files = [*sources.rglob("*.go"), sources / "go.mod", sources / "go.sum"]
        with _built_once("go", files, version.stdout.decode()) as (folder, new):
            if new is not None:
                what = (
                    ["test", "-c", "-o", str(new / "tests")] if tests else ["build", "-o", f"{new}{os.sep}"]
                )
                _build([go, *what, "-trimpath", "-buildvcs=false", "./..."], sources, environment)
    except Unavailable as missing:
        return missing
    return folder


def _check_go(version: str, module: str) -> None:
    wanted = re.search(r"^go (\d+)\.(\d+)", module, re.MULTILINE)
    found = re.match(r"go(\d+)\.(\d+)", version)
    assert wanted is not None
    if found is None or tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        raise Unavailable(
            f"needs Go {wanted[1]}.{wanted[2]} or newer, as go.mod requires (found: {version or 'none that runs'})"
        )


@cache
def _rust_programs(sources: Path) -> Path | Unavailable:
    # Without optimisation and debug information a cold build takes half the time, above all librdkafka's C code.
    environment = {"CARGO_HOME": str(CACHE / "rust" / "home"), "CFLAGS": "-O0 -g0", "CARGO_INCREMENTAL": "0"}
    try:
        cargo = _tool("cargo")
        version = subprocess.run([cargo, "--version"], capture_output=True, text=True).stdout.strip()
        files = [*sources.rglob("*.rs"), sources / "Cargo.toml", sources / "Cargo.lock"]
        with _built_once("rust", files, version) as (folder, new):
            if new is not None:
                target = CACHE / "rust" / "target"
                _build(
                    [cargo, "build", "--locked", "--bins", "--target-dir", str(target)], sources, environment
                )
                for program in (sources / "src" / "bin").glob("*.rs"):
                    shutil.copy(target / "debug" / program.stem, new)
    except Unavailable as missing:
        return missing
    return folder


@cache
def _python_packages(requirements: tuple[str, ...]) -> Path | Unavailable:
    try:
        with _built_once("python", [], sys.version, *requirements) as (folder, new):
            if new is not None:
                pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
                _build([*pip, "--target", str(new), *requirements], CACHE, {})
    except Unavailable as missing:
        return missing
    return folder


@cache
def _node_programs(sources: Path, *, compiles: bool = False) -> Path | Unavailable:
    try:
        node, npm = _tool("node"), _tool("npm")
        version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
        if int((re.match(r"v(\d+)", version) or ["", "0"])[1]) < NODE_VERSION_MIN:
            raise Unavailable(
                f"needs Node {NODE_VERSION_MIN} or newer (found: {version or 'none that runs'})"
            )
        files = [*sources.glob("*.*js"), *sources.glob("package*.json")]
        with _built_once("node", files) as (folder, new):
            if new is not None:
                for file in files:
                    shutil.copy(file, new)
                environment = {"npm_config_cache": str(CACHE / "npm"), "npm_config_update_notifier": "false"}
                # Link librdkafka to the system's libraries instead of downloaded ones, without optimisation: half the time.
                compiling = {"CKJS_LINKING": "dynamic", "CFLAGS": "-O0 -g0", "CXXFLAGS": "-O0 -g0"}
                scripts = [] if compiles else ["--ignore-scripts"]
                _build([npm, "ci", *scripts, "--no-audit", "--no-fund"], new, environment | compiling)
    except Unavailable as missing:
        return missing
    return folder


# ---- running


class Running:
    """A running program. ``seen`` has the JSON lines that it has written so far."""

    def __init__(self, command: Sequence[str]) -> None:
        self.seen: list[dict[str, Any]] = []
        self._lines: Queue[dict[str, Any] | None] = Queue()
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def expect(self, name: str, value: Any, *, within_s: float = HANG_S) -> Any:
        """Wait for an event with this name and value, skipping other events, and return its value.

        ``value`` may be a predicate. Fails after ``within_s`` seconds, or if the program ends first.
        """
        while True:
            try:
                said = self._lines.get(timeout=within_s)
            except Empty:
                raise AssertionError(
                    f"no event {name}={value!r} in {within_s} s; the program wrote {self.seen}\n{self.complaints}"
                ) from None
            if said is None:
                self._lines.put(None)
                raise AssertionError(
                    f"the program ended before {name}={value!r}: {self.seen}\n{self.complaints}"
                )
            self.seen.append(said)
            if name in said and (value(said[name]) if callable(value) else said[name] == value):
                return said[name]

    def heard(self, name: str) -> Any:
        """The value of the last event with this name that the program has written; None if there is none."""
        with contextlib.suppress(Empty):
            while (said := self._lines.get_nowait()) is not None:
                self.seen.append(said)
            self._lines.put(None)
        return next((each[name] for each in reversed(self.seen) if name in each), None)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> list[dict[str, Any]]:
        """Send SIGKILL, and return all events that the program had written."""
        assert self.is_alive, self.complaints
        self._process.kill()
        self._process.wait(HANG_S)
        while (said := self._lines.get(timeout=HANG_S)) is not None:
            self.seen.append(said)
        self._lines.put(None)
        return self.seen

    def freeze(self) -> None:
        """Stop the program with SIGSTOP until `wake`."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def go_on(self) -> None:
        """Write a line to the program's standard input, for which the program waits."""
        self.tell("")

    def tell(self, line: str) -> None:
        """Write a line to the program's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def finish(self) -> list[dict[str, Any]]:
        """Wait for the end of the program, with exit code 0, and return all its events."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            status = self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program still runs after {HANG_S} s\n{self.complaints}") from None
        while (said := self._lines.get(timeout=HANG_S)) is not None:
            self.seen.append(said)
        assert status == 0, f"exit code {status} after {self.seen}\n{self.complaints}"
        return self.seen

    @property
    def complaints(self) -> str:
        """The last part of the program's standard error."""
        self._complaints.seek(0)
        return self._complaints.read()[-4000:]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Program:
    """A client's program. ``order``, its first command-line argument, selects what it does."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)

    def start(self, order: str, *arguments: object) -> Running:
        return Running([*self.command, order, *map(str, arguments)])

    def run(self, order: str, *arguments: object) -> list[dict[str, Any]]:
        """Run the program to its end and return all of its events."""
        with self.start(order, *arguments) as running:
            return running.finish()
