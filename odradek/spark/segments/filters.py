"""Conditions on segments, batches and rows, made from the filters that Spark pushes down.

A filter that is accepted is applied exactly, so Spark need not apply it again. All other filters are returned to Spark. As
in SQL a condition on a null column is false, so a condition on anything but the place of a row excludes rows with an
``error``.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import datasource as spark
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, TimestampType

from odradek.spark.segments.schemas import TABLES

PLACE = {
    "records": ("log_dir", "topic", "partition"),
    "batches": ("log_dir", "topic", "partition"),
    "transaction_state": ("log_dir", "partition"),
    "offsets": ("log_dir", "log_partition"),
}
"""Columns that are the same in all rows of a segment, including those with errors."""

BATCH = {
    "records": (
        "producer_id",
        "producer_epoch",
        "transactional",
        "control",
        "leader_epoch",
        "batch_offset",
    ),
    "batches": (
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "records",
        "timestamp",
        "max_timestamp",
        "transactional",
        "control",
    ),
    "transaction_state": (),
    "offsets": ("producer_id", "producer_epoch", "transactional", "control"),
}
"""Columns that are the same in all rows of a batch."""

ROW = {
    "records": ("offset", "timestamp"),
    "batches": (),
    "transaction_state": ("offset", "timestamp"),
    "offsets": ("offset", "timestamp"),
}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_TESTS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


class Condition(NamedTuple):
    """A condition ``column test value``. Times are microseconds since 1970.

    The test is one of ``= < <= > >= in`` and ``known`` (not null), or, if ``negated``, the opposite.
    """

    column: str
    test: str
    value: Any = None
    negated: bool = False

    def holds(self, values: Any) -> Any:
        """Whether the condition is true for each of ``values``, which contain no nulls."""
        found = _holds(self.test, values, self.value)
        return ~found if self.negated else found

    def holds_for(self, value: Any) -> bool:
        """Whether the condition is true for one value, which may be a string."""
        return bool(np.atleast_1d(self.holds(np.array([value], dtype=object)))[0])

    def may_hold(self, lowest: NDArray[np.int64], highest: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each range ``lowest`` to ``highest``, inclusive: whether any number in it can make the condition true."""
        value = self.value
        if self.negated or self.test == "known":
            return np.ones(len(lowest), np.bool_)
        if self.test in ("<", "<="):
            return _holds(self.test, lowest, value)
        if self.test in (">", ">="):
            return _holds(self.test, highest, value)
        found = np.zeros(len(lowest), np.bool_)
        for one in value if self.test == "in" else (value,):
            found |= (lowest <= one) & (one <= highest)
        return found


def _holds(test: str, values: Any, value: Any) -> NDArray[np.bool_]:
    if test == "known":
        return np.ones(len(values), np.bool_)
    if test == "in":
        found = np.zeros(len(values), np.bool_)
        for one in value:
            found |= np.asarray(values == one, np.bool_)
        return found
    compare = {"=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    return np.asarray(compare[test](values, value), np.bool_)


class Conditions(NamedTuple):
    """Conditions on a row's place (log directory, topic, partition), batch and own columns; a row must satisfy all."""

    place: tuple[Condition, ...] = ()
    batch: tuple[Condition, ...] = ()
    row: tuple[Condition, ...] = ()

    @property
    def admit_errors(self) -> bool:
        return not self.batch and not self.row

    def admits(self, place: dict[str, Any]) -> bool:
        """Whether rows of this place can be in the result; ``place`` has the values by column name."""
        return all(one.holds_for(place[one.column]) for one in self.place)


def take(table: str, filters: Iterable[spark.Filter]) -> tuple[Conditions, list[spark.Filter]]:
    """Split ``filters`` into the accepted ones, as conditions, and those that Spark must apply itself."""
    place: list[Condition] = []
    batch: list[Condition] = []
    row: list[Condition] = []
    returned = []
    for one in filters:
        condition = _condition(table, one)
        if condition is None:
            returned.append(one)
        elif condition.column in PLACE[table]:
            place.append(condition)
        elif condition.column in BATCH[table]:
            batch.append(condition)
        elif condition.column in ROW[table]:
            row.append(condition)
        else:
            returned.append(one)
    return Conditions(tuple(place), tuple(batch), tuple(row)), returned


def _condition(table: str, one: spark.Filter) -> Condition | None:
    if isinstance(one, spark.Not):
        inner = _condition(table, one.child)
        if inner is None or inner.test == "known" or isinstance(one.child, spark.Not | spark.EqualNullSafe):
            return None
        return inner._replace(negated=True)
    attribute: Sequence[str] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in TABLES[table].fieldNames():
        return None
    [column] = attribute
    if isinstance(one, spark.IsNotNull):
        return Condition(column, "known")
    kind = TABLES[table][column].dataType
    if isinstance(one, spark.In):
        values = [_literal(kind, value) for value in one.value]
        return None if None in values else Condition(column, "in", tuple(values))
    test = _TESTS.get(type(one))
    value = _literal(kind, getattr(one, "value", None))
    return None if test is None or value is None else Condition(column, test, value)


def _literal(kind: DataType, value: Any) -> Any:
    """Convert a filter's literal to compare it with a column of type ``kind``; None if it has another type."""
    if isinstance(kind, TimestampType):
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            return (value - _EPOCH) // _MICROSECOND
        return None
    wanted: dict[type[DataType], type] = {
        IntegerType: int,
        LongType: int,
        StringType: str,
        BooleanType: bool,
    }
    return value if type(value) is wanted.get(type(kind)) else None


_OFFSETS = ("offset", "base_offset", "last_offset", "batch_offset")


def may_hold_offsets(conditions: Conditions, first: int, after: int | None) -> bool:
    """Whether a segment with the offsets from ``first`` to before ``after`` can contain rows of the result."""
    lowest = np.array([first], np.int64)
    highest = np.array([np.iinfo(np.int64).max if after is None else after - 1], np.int64)
    return all(
        bool(one.may_hold(lowest, highest)[0])
        for one in (*conditions.batch, *conditions.row)
        if one.column in _OFFSETS
    )
