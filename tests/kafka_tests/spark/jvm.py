"""The JVM that runs the suites of Spark's Kafka connector, with the jars of Spark from pyspark."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from odradek.spark.jars import connector_jars
from tests.support.deadlines import HANG_S
from tests.support.java import SHORT_LIVED, java
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


def command(against: str, folder: Path) -> list[str]:
    """Options and main class of a JVM whose arguments are suites, with stand-ins or with the broker that Spark embeds.

    ``folder`` is a temporary folder, for files from jars that the suites read by path.
    """
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    spark_home = Path(pyspark.origin).parent
    tests = framework_jars("spark-tests")
    own = [
        str(connector_jars(Path(java()), CACHE)[0].parent / "*"),
        str(spark_home / "jars" / "*"),
        tests,
    ]
    if against == "kafka":
        own.append(framework_jars("spark-tests-kafka"))
    jars = os.pathsep.join(own)
    classpath = compiled(FOLDER / "launcher", jars, LINES)
    if against != "kafka":
        classpath = compiled(FOLDER / "stand_ins", jars, CONTROL).replace(jars, classpath)
    (jar,) = Path(tests).parent.glob("spark-sql-kafka-*-tests.jar")
    with ZipFile(jar) as archive:
        archive.extractall(folder, [each for each in archive.namelist() if not each.endswith(".class")])
    return [
        "-Xmx2g",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()),
        f"-Dlog4j2.configurationFile={FOLDER / 'log4j2.properties'}",
        "-Dspark.testing=true",
        # For the suite that starts executors as processes, and waits 10 seconds for them.
        f"-Dspark.test.home={spark_home}",
        "-Dspark.executorEnv.SPARK_SCALA_VERSION=2.13",
        f"-Dspark.executor.defaultJavaOptions={' '.join(SHORT_LIVED)}",
        # Minutes after which a test fails. The runner waits longer for it.
        f"-Dspark.test.timeout={int(HANG_S * 1.5 / 60)}",
        "-cp",
        f"{folder}{os.pathsep}{classpath}",
        "RunSuites",
    ]
