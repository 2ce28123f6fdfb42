"""Audit the segment files of a run: every transaction, and the business keys of both topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.environment import session

if TYPE_CHECKING:
    from odradek.spark.audit import Report

FLIGHT = "get_json_object(cast(value as string), '$.row')"
"""SQL expression for a flight's row number, which is unique in the source topic; null for closing records."""
AIRPORT_AND_HOUR = "cast(key as string)"
FINDINGS_SHOWN = 5


def audited(data_dir: Path, out: Path, source: str, sink: str, say: Callable[[str], None]) -> Report:
    """Audit the segment files below ``data_dir``, and write the page and the tables to ``out``."""
    from pyspark.sql import SparkSession

    from odradek.spark.audit import audit

    is_ours = SparkSession.getActiveSession() is None
    spark = session("flights-audit")
    try:
        return audit(spark, data_dir, out, unique={source: FLIGHT, sink: AIRPORT_AND_HOUR}, say=say)
    finally:
        if is_ours:
            spark.stop()


def evidence(report: Report) -> list[str]:
    """The first findings of the report, one line each."""
    return [f"{each.name}: {each.where}: {each.detail}" for each in report.findings[:FINDINGS_SHOWN]]
