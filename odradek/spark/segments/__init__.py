"""``format("odradek.segments")``: a Spark data source that reads segment files as tables (docs/spark/segments.md)."""

from __future__ import annotations

from odradek.spark.segments.source import Segments

__all__ = ["Segments"]
