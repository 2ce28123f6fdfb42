"""Kafka for Spark jobs: an exactly-once sink, segment files as tables, an audit, and fixtures for tests (docs/spark.md).

    from odradek.spark import session

    spark = session()
    rows.writeStream.format("odradek.exactly_once")...

Names are imported when they are first used, and pyspark when a session is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.environment import JavaMissing, connector_jars, register, session
    from odradek.spark.jars import JarsMissing

__all__ = ["JarsMissing", "JavaMissing", "connector_jars", "register", "session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'odradek.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("odradek.spark.environment"), name)
