"""Spark beside the broker: an exactly-once sink, segment files as tables, an audit, a kit for tests (docs/spark.md)."""
