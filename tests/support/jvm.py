"""Programs with JVM frameworks under ``tests/clients/jvm``: one folder for each framework, with its unmodified jars.

    program = jvm_program("streams", "WordCount")
    with program.start(broker.bootstrap, directory) as member:
        member.expect("state", "RUNNING")

``artifacts.json`` pins the jars of each framework. The programs of "kafka" run with the jars of Apache Kafka itself.
A program writes lines of JSON, which ``tests.support.foreign`` reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.foreign import Program
from tests.support.java import SHORT_LIVED, archive_folder, jars_folder, java, kafka_classpath
from tests.support.javaprog import compiled

FOLDER = Path(__file__).resolve().parents[1] / "clients" / "jvm"
OPTIONS = (*SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def artifacts(framework: str) -> list[str]:
    """Maven coordinates of a framework's jars."""
    pinned: list[str] = json.loads((FOLDER / "artifacts.json").read_text())[framework]
    return pinned


def framework_jars(framework: str) -> str:
    """Class path of a framework and its dependencies, downloaded once for each list of coordinates."""
    coordinates = artifacts(framework)
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:8]
    return str(jars_folder(f"{framework}-{digest}", *coordinates) / "*")


def jvm_archive(framework: str) -> Path:
    """Folder of a program that Maven's repository has as a .tar.gz."""
    (coordinate,) = artifacts(framework)
    return archive_folder(coordinate.replace(":", "-"), coordinate)


def jvm_program(framework: str, main: str, *, heap_mib: int = 256, options: Sequence[str] = ()) -> Program:
    """Program that runs the class ``main`` of a framework's folder, or of the framework itself.

    The test is skipped if there is no Java, or the jars cannot be downloaded.
    """
    classpath = kafka_classpath() if framework == "kafka" else framework_jars(framework)
    if any((FOLDER / framework).glob("*.java")):
        classpath = compiled(FOLDER / framework, classpath)
    return Program([java(), f"-Xmx{heap_mib}m", *OPTIONS, *options, "-cp", classpath, main])
