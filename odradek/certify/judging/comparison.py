"""Compare the outputs of a run with those of a reference run: lost, duplicated, changed, unexpected, reordered.

Rows are compared as multisets (``rows``), by the last value of each key (``keyed``), or by their order within each key
(``ordered-by-key``). The demo and the Spark pipeline use this module too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.certify.judging.rows import Data, Row, has_order, shown


class Compare(Enum):
    """Method of comparison; the values are those of ``--compare``."""

    ROWS = "rows"
    KEYED = "keyed"
    ORDERED = "ordered-by-key"
    NONE = "none"
    """No comparison: only the user's check decides."""


class Change(NamedTuple):
    """A row of the reference run, and the row that the run has instead."""

    expected: Row
    found: Row

    def __str__(self) -> str:
        """Describe the change, such as ``out: key k, v: header trace is missing, without faults 3``.

        >>> str(Change(Row("out", "", "v", (("a", "1"),)), Row("out", None, "v")))
        'out: v: key null, without faults ""; header a missing, without faults 1'
        """
        return self.words("without faults")

    def words(self, where: str) -> str:
        """Description of the difference. ``where``, such as "without faults", introduces the expected row."""
        return f"{self.found}: {'; '.join(self._parts(where))}"

    def _parts(self, where: str) -> Iterable[str]:
        one, two = self
        for name, before, now in (
            ("key", shown(one.key), shown(two.key)),
            ("value", shown(one.value), shown(two.value)),
            *((f"header {name}", *sides) for name, *sides in _headers(one, two)),
            ("partition", one.partition, two.partition),
            ("timestamp", one.timestamp_ms, two.timestamp_ms),
        ):
            if before != now:
                yield f"{name} {now}, {where} {before}"


def _headers(one: Row, two: Row) -> Iterable[tuple[str, str, str]]:
    for name in dict.fromkeys(name for name, _ in (*one.headers, *two.headers)):
        before, now = (
            ", ".join(shown(data) for each, data in row.headers if each == name) for row in (one, two)
        )
        yield name, before or "missing", now or "missing"


class Order(NamedTuple):
    """A key (or, for rows without a key, a partition) whose rows are in another order than in the reference run."""

    topic: str
    key: Data
    partition: int | None
    expected: tuple[Row, ...]
    found: tuple[Row, ...]
    """The rows in the order of the run. With ``keyed``, ``expected`` and ``found`` contain only the last row.

    >>> str(Order("out", "k", None, (Row("out", "k", "1"),), (Row("out", "k", "2"),)))
    'out: key k: 2, without faults 1'
    """

    def __str__(self) -> str:
        """Describe the difference, such as ``out: key k: 2, without faults 1``, starting with the first row that differs."""
        return self.words("without faults")

    def words(self, where: str) -> str:
        """Description of the difference. ``where``, such as "without faults", introduces the expected order."""
        whose = (
            f"{self.topic}: key {shown(self.key)}"
            if self.key is not None
            else f"{self.topic}-{self.partition}"
        )
        before, now = next(
            pair for pair in zip(self.expected, self.found, strict=False) if pair[0] != pair[1]
        )
        return f"{whose}: {shown(now.value)}, {where} {shown(before.value)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between a run and a reference run."""

    lost: Counter[Row] = field(default_factory=Counter)
    duplicated: Counter[Row] = field(default_factory=Counter)
    unexpected: Counter[Row] = field(default_factory=Counter)
    changed: Counter[Change] = field(default_factory=Counter)
    reordered: tuple[Order, ...] = ()
    redelivered: Counter[Row] = field(default_factory=Counter)
    """Duplicates that the comparison, or the promise of at least once, allows. They do not count as a difference."""
    rejected: Counter[Row] = field(default_factory=Counter)
    """Outputs that are missing, or dead letters that are there, because the input was rejected. They do not count either."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.duplicated or self.unexpected or self.changed or self.reordered)

    @property
    def summary(self) -> str:
        """Summary such as ``lost 0, duplicated 0``, with any other kinds that have a count above 0."""
        more = {
            "changed": self.changed.total(),
            "unexpected": self.unexpected.total(),
            "reordered": len(self.reordered),
            "redelivered": self.redelivered.total(),
            "rejected": self.rejected.total(),
        }
        counts = {"lost": self.lost.total(), "duplicated": self.duplicated.total()}
        counts |= {name: count for name, count in more.items() if count}
        return ", ".join(f"{name} {count}" for name, count in counts.items())


Identity = Callable[[Row], Hashable]
"""Function from a row to a value, by which a changed row is recognised.

An unexpected row is a changed version of a lost row if the function returns the same value for these two rows.
"""


def by_content(row: Row) -> Hashable:
    """Topic, key and value; null equals empty."""
    return row.topic, row.key or "", row.value or ""


def by_key(row: Row) -> Hashable:
    """Topic and key, for topics in which no key has more than one row."""
    return row.topic, row.key


def compare(
    expected: Sequence[Row], found: Sequence[Row], how: Compare, identity: Identity = by_content
) -> Difference:
    """Compare the rows of a reference run with those of another run. Both must be ordered by partition and offset."""
    if how is Compare.NONE or expected == found:
        return Difference()
    if how is Compare.KEYED:
        return _keyed(expected, found)
    difference = _multisets(expected, found, identity)
    if how is Compare.ORDERED and not difference:
        return Difference(reordered=tuple(_reordered(expected, found)))
    return difference


def _multisets(expected: Iterable[Row], found: Iterable[Row], identity: Identity) -> Difference:
    wanted, got = Counter(expected), Counter(found)
    if dict.__eq__(wanted, got):  # Counter.__eq__ is a loop in Python
        return Difference()
    missing, more = wanted - got, got - wanted
    changed = _changed(missing, more, wanted, identity)
    for change, count in changed.items():
        missing[change.expected] -= count
        more[change.found] -= count
    known = set(map(identity, wanted))
    duplicated = Counter({row: count for row, count in (+more).items() if identity(row) in known})
    return Difference(+missing, duplicated, more - duplicated, changed)


def _changed(
    missing: Counter[Row], more: Counter[Row], wanted: Counter[Row], identity: Identity
) -> Counter[Change]:
    """Pair each unexpected row with a lost row that has the same ``identity(row)``, and count the pairs."""
    places: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in missing.elements():
        places[identity(row)].append(row)
    changed: Counter[Change] = Counter()
    for row in more.elements():
        if row not in wanted and places[identity(row)]:
            changed[Change(places[identity(row)].pop(0), row)] += 1
    return changed


_Key = tuple[str, Data]


def _keyed(expected: Iterable[Row], found: Iterable[Row]) -> Difference:
    """Compare the last value of each key. Rows without a key are compared as multisets.

    If the rows of an output have no order, no value is the last one: all values of the key are compared.
    """
    keyless = _multisets(
        (row for row in expected if row.key is None), (row for row in found if row.key is None), by_content
    )
    wanted, got = _by_key(expected), _by_key(found)
    lost, unexpected, redelivered = Counter[Row](), Counter[Row](), Counter[Row]()
    changed, reordered = Counter[Change](), list[Order]()
    for key in dict.fromkeys([*wanted, *got]):
        before, now = wanted.get(key, []), got.get(key, [])
        if not has_order(key[0]):
            gone, new = (
                [each for each in dict.fromkeys(one) if each not in two]
                for one, two in ((before, now), (now, before))
            )
            changed.update(map(Change, gone, new))
            lost.update(gone[len(new) :])
            unexpected.update(new[len(gone) :])
            redelivered.update(_repeats(before, now))
        elif not now:
            lost[before[-1]] += 1
        elif not before:
            unexpected[now[-1]] += 1
        elif before[-1] == now[-1]:
            redelivered.update(_repeats(before, now))
        elif now[-1] not in before:
            changed[Change(before[-1], now[-1])] += 1
        elif before[-1] in now:
            reordered.append(Order(*key, None, (before[-1],), (now[-1],)))
        else:
            lost[before[-1]] += 1
    return Difference(
        keyless.lost + lost,
        keyless.duplicated,
        keyless.unexpected + unexpected,
        keyless.changed + changed,
        tuple(sorted(reordered, key=str)),
        redelivered,
    )


def _repeats(before: Sequence[Row], now: Sequence[Row]) -> Mapping[Row, int]:
    if before == now:
        return {}
    wanted = Counter(before)
    return {row: count for row, count in (Counter(now) - wanted).items() if row in wanted}


def _by_key(rows: Iterable[Row]) -> dict[_Key, list[Row]]:
    found: defaultdict[_Key, list[Row]] = defaultdict(list)
    for row in rows:
        if row.key is not None:
            found[row.topic, row.key].append(row)
    return dict(found)


def _reordered(expected: Iterable[Row], found: Iterable[Row]) -> Iterable[Order]:
    """Yield each key whose rows are in a different order in ``found``. Both arguments contain the same rows.

    For rows without a key, yield each partition with a different order, if partitions are compared.
    """
    one, two = _sequences(expected), _sequences(found)
    for key in one:
        if one[key] != two[key]:
            yield Order(*key, tuple(one[key]), tuple(two[key]))


def _sequences(rows: Iterable[Row]) -> defaultdict[tuple[str, Data, int | None], list[Row]]:
    found: defaultdict[tuple[str, Data, int | None], list[Row]] = defaultdict(list)
    for row in rows:
        if row.key is not None or row.partition is not None:
            found[row.topic, row.key, row.partition if row.key is None else None].append(row)
    return found
