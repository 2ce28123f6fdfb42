"""The formats and options of the exactly-once sink and Spark's own sink, and the environment of a driver for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

OURS = "odradek.exactly_once"
EXACTLY_ONCE, STOCK = "exactly_once", "stock"
STAGED = "odradek.exactly_once.staged"
NAME_OPTION = "name"


def environment(directory: Path) -> dict[str, str]:
    """Environment variables for the driver. The files that a killed driver leaves behind are in the directory."""
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }


def form(sink: str) -> str:
    return {EXACTLY_ONCE: STAGED, STOCK: "kafka"}[sink]


def options(sink: str, query: str) -> dict[str, Any]:
    return {NAME_OPTION: query} if sink == EXACTLY_ONCE else {}
