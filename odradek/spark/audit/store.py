"""Tables as directories of Parquet files. Spark writes the tables; the driver reads small results without a Spark job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

SMALL_ROWS: Final = 200_000
"""Number of batches up to which planning and compiling a query takes as long as running it."""
ROWS_PER_TASK: Final = 400_000

Rows = list[dict[str, Any]]


class Store:
    """Tables by name in one directory that the driver and Spark's tasks share."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.directory / name

    def keep(self, name: str, frame: DataFrame, files: int | None = 1) -> DataFrame:
        """Write a table and return it as read from its files.

        The table is written as ``files`` files; None for one file per task.
        """
        path = self._emptied(name)
        (frame if files is None else frame.coalesce(files)).write.parquet(path.as_posix())
        return self.frame(name, frame.schema)

    def put(self, name: str, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
        """Write a few rows from the driver, without a Spark job."""
        path = self._emptied(name)
        path.mkdir()
        table = pa.Table.from_pylist([dict(row) for row in rows], to_arrow_schema(schema, timezone="UTC"))
        pq.write_table(table, path / "part-0.parquet")
        return self.frame(name, schema)

    def count(self, name: str) -> int:
        """Number of rows of the table, from the footers of its Parquet files."""
        return sum(pq.read_metadata(file).num_rows for file in self.path(name).glob("*.parquet"))

    def holds(self, name: str, column: str) -> bool:
        """Whether ``column`` is true in any row of the table."""
        files = self.path(name).glob("*.parquet")
        return any(bool(pc.any(pq.read_table(file, columns=[column])[column]).as_py()) for file in files)

    def rows(self, name: str, limit: int) -> Rows:
        found: Rows = []
        for file in sorted(self.path(name).glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches():
                found += batch.slice(0, limit - len(found)).to_pylist()
                if len(found) >= limit:
                    return found
        return found

    def _emptied(self, name: str) -> Path:
        path = self.path(name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def frame(self, name: str, schema: StructType) -> DataFrame:
        """An existing table as a DataFrame."""
        # The schema is passed because Spark would otherwise start a job to read the footers.
        return self.spark.read.schema(schema).parquet(self.path(name).as_posix())


@contextmanager
def adapted(spark: SparkSession, batches: int) -> Iterator[None]:
    """Context manager: adapt Spark's settings to queries over this number of batches, and restore them at the end.

    With few batches, code generation and additional stages cost more time than they save.
    """
    small = batches <= SMALL_ROWS
    wanted = {
        "spark.sql.shuffle.partitions": "1" if small else str(max(8, batches // ROWS_PER_TASK)),
        "spark.sql.adaptive.enabled": str(not small).lower(),
        "spark.sql.codegen.wholeStage": str(not small).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if small else "FALLBACK",
        "spark.sql.session.timeZone": "UTC",
    }
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
