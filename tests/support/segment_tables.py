"""Functions that read tables of ``odradek.segments`` as Spark does, without Spark, and unpack directories that Apache
Kafka wrote."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.spark.segments import Segments
from tests.clients.record_directories import DIRECTORIES

RECORDED = ("clean", "killed")


def read(path: Path, filters: Sequence[Filter] = (), **options: str) -> pa.Table:
    """The table that Spark would get. Names of options have ``_`` instead of dots."""
    given = {name.replace("_", "."): text for name, text in options.items()}
    source = Segments({"path": str(path), "pushdown": "true", **given})
    schema = source.schema()
    reader = source.reader(schema)
    assert list(reader.pushFilters(list(filters))) == []
    batches: list[Any] = [batch for task in reader.partitions() for batch in reader.read(task)]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=to_arrow_schema(schema, timezone="UTC"))


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, with times in microseconds."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.combine_chunks().itercolumns()
    ]
    return pa.table(columns, names=table.column_names).to_pylist()


def recorded(name: str, home: Path) -> Path:
    """Unpack the data directory of a Kafka node that was stopped (``clean``) or killed, into ``home``."""
    with tarfile.open(DIRECTORIES / f"{name}.tar.xz") as archive:
        archive.extractall(home, filter="data")
    return home / "data"


def segment(directory: Path, data: bytes, base_offset: int = 0) -> Path:
    """Write one segment file into a partition's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{base_offset:020d}.log"
    log.write_bytes(data)
    return log
