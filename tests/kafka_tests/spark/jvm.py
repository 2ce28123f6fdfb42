"""The JVM that runs the suites of Spark's Kafka connector, with the jars of Spark from pyspark."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from odradek.spark.jars import connector_jars
from tests.support.deadlines import HANG_S
from tests.support.java import java
from tests.support.javaprog import compiled
from tests.support.jvm import framework_jars

FOLDER: Final = Path(__file__).parent
CACHE: Final = FOLDER.parents[2] / ".cache" / "jars"
CONTROL: Final = FOLDER.parent / "stand_ins" / "Control.java"
LINES: Final = FOLDER.parent / "launcher" / "Lines.java"
OPENED: Final = (
    "java.io java.lang java.lang.invoke java.lang.reflect java.net java.nio java.util java.util.concurrent "
    "java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"
)
"""Packages that Spark uses by reflection (`JavaModuleOptions`)."""


def command(against: str) -> list[str]:
    """Options and main class of a JVM whose arguments are suites, with stand-ins or with the broker that Spark embeds."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    own = [
        str(connector_jars(Path(java()), CACHE)[0].parent / "*"),
        str(Path(pyspark.origin).parent / "jars" / "*"),
        framework_jars("spark-tests"),
    ]
    if against == "kafka":
        own.append(framework_jars("spark-tests-kafka"))
    jars = os.pathsep.join(own)
    classpath = compiled(FOLDER / "launcher", jars, LINES)
    if against != "kafka":
        classpath = compiled(FOLDER / "stand_ins", jars, CONTROL).replace(jars, classpath)
    return [
        "-Xmx2g",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()),
        f"-Dlog4j2.configurationFile={FOLDER / 'log4j2.properties'}",
        "-Dspark.testing=true",
        # Minutes after which a test fails. The runner waits longer for it.
        f"-Dspark.test.timeout={int(HANG_S * 1.5 / 60)}",
        "-cp",
        classpath,
        "RunSuites",
    ]
