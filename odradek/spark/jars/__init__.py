"""Download the jars of Spark's Kafka connector into a cache, with the Ivy that pyspark contains.

    connector_jars(java(), cache_directory() / "jars")  # for the installed version of pyspark

The download needs only Java and pyspark, and no network after the first time. ``ivy.xml`` lists the jars. The
connector's token provider was not published for every version of the connector: the connector's version is tried first,
then the last published one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.extras import install_command

_HERE: Final = Path(__file__).parent
# The connector passes all conformance tests with this version under 4.2.0.
TOKEN_PROVIDER_FALLBACK: Final = "4.0.0"
# Path of an ivysettings.xml, for machines that reach Maven Central only through a mirror.
SETTINGS_VARIABLE: Final = "ODRADEK_IVY_SETTINGS"
_FETCH_TIMEOUT_S: Final = stretched(600.0)
# This file is written last: a directory without it is an incomplete download.
_COMPLETE: Final = "complete"


class JarsMissing(OdradekError):
    """The connector's jars are not in the cache and could not be downloaded."""


def connector_jars(java: Path, cache: Path) -> list[Path]:
    """The connector's jars for the installed pyspark, below ``cache``; downloads them if they are missing."""
    spark, scala, ivy = _pyspark()
    folder = cache / f"spark-kafka-{spark}_{scala}"
    if not (folder / _COMPLETE).exists():
        with locked(folder.with_name(f"{folder.name}.lock")):
            # Another process may have downloaded the jars while this one waited for the lock.
            if not (folder / _COMPLETE).exists():
                _fetch(java, ivy, spark, scala, folder)
    return sorted(folder.glob("*.jar"))


def _pyspark() -> tuple[str, str, Path]:
    """Return pyspark's version, its Scala version and its Ivy jar, without importing pyspark, which takes a second."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise JarsMissing(f"pyspark is not installed: {install_command('spark')}")
    folder = Path(found.origin).parent / "jars"
    ivy = next(folder.glob("ivy-*.jar"), None)
    scala = next(folder.glob("scala-library-*.jar"), None)
    if ivy is None or scala is None:
        raise JarsMissing(f"{folder} lacks Spark's own jars: {install_command('spark')}")
    binary_version = ".".join(scala.stem.removeprefix("scala-library-").split(".")[:2])
    return version("pyspark"), binary_version, ivy


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Context manager: hold an exclusive lock (flock) on the file ``path``; other processes wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(java: Path, ivy: Path, spark: str, scala: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        said = ""
        for provider in dict.fromkeys((spark, TOKEN_PROVIDER_FALLBACK)):
            said = _retrieve(
                java, ivy, {"connector": spark, "provider": provider, "scala": scala}, Path(work)
            )
            fetched = sorted((Path(work) / "jars").glob("*.jar"))
            if len(fetched) == 4:
                break
        else:
            raise JarsMissing(
                f"the jars of Spark's Kafka connector {spark} could not be downloaded: {_reason(said)}"
            )
        _check(fetched)
        (Path(work) / "jars" / _COMPLETE).write_text("".join(f"{each.name}\n" for each in fetched))
        shutil.rmtree(folder, ignore_errors=True)  # the rest of an incomplete download
        os.replace(Path(work) / "jars", folder)


def _retrieve(java: Path, ivy: Path, versions: dict[str, str], work: Path) -> str:
    """Run Ivy with an empty cache, so that an incomplete cache of the user has no effect; return Ivy's output."""
    settings = os.environ.get(SETTINGS_VARIABLE) or str(_HERE / "ivysettings.xml")
    command = [str(java), "-Xmx256m", *(f"-D{name}={version}" for name, version in versions.items())]
    command += ["-cp", str(ivy), "org.apache.ivy.Main", "-settings", settings, "-cache", str(work / "ivy")]
    command += ["-ivy", str(_HERE / "ivy.xml"), "-retrieve", str(work / "jars/[artifact]-[revision].[ext]")]
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarsMissing(f"the jars of Spark's Kafka connector could not be downloaded: {error}") from error
    return ended.stdout + ended.stderr


def _reason(output: str) -> str:
    """The most informative line of Ivy's output."""
    telling = ("exception", "not found", "Server access error", "error", "Error")
    lines = [line.strip(" \t:") for line in output.splitlines()]
    return next(
        (line for word in telling for line in lines if word in line), lines[-1] if lines else "no output"
    )


def _check(jars: list[Path]) -> None:
    """Compare the jars with the digests in ``sha256.json``. Raise ``JarsMissing`` if a digest differs.

    Ivy compares jars only with digests that it downloads from the repository."""
    known: dict[str, str] = json.loads((_HERE / "sha256.json").read_text("utf-8"))
    for jar in jars:
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        if known.get(jar.name, digest) != digest:
            raise JarsMissing(f"{jar.name} was downloaded, but its SHA-256 is not the expected one")
