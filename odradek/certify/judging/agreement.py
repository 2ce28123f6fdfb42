"""Compare the outputs of two runs without faults: whether they agree, and which records differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from odradek.certify.judging.comparison import Compare, compare
from odradek.certify.judging.rows import Fields, Row, differing_fields, rows
from odradek.topics import Record

LINES_MAX: Final = 20


def agreed(
    first: Sequence[Record],
    second: Sequence[Record],
    how: Compare,
    ignored: Fields = frozenset(),
    also: Iterable[str] = frozenset(),
) -> tuple[Fields, list[str]]:
    """Return (``ignored`` plus the fields that differ between the two runs, lines about all other differences).

    There are no lines if the runs agree.
    """
    also = frozenset(also)
    if compare(rows(first, ignored, also), rows(second, ignored, also), how):
        ignored |= differing_fields(first, second)
    return ignored, differing(first, second, how, ignored, also)


def compared(how: Compare, also: Iterable[str] = ()) -> str:
    """Describe what is compared, for the certificate.

    >>> compared(Compare.KEYED, ["partition"])
    'compared: topic, key, value, headers, partition (--compare keyed)'
    >>> compared(Compare.NONE)
    'compared: nothing; only the check decides'
    """
    if how is Compare.NONE:
        return "compared: nothing; only the check decides"
    return (
        f"compared: {', '.join(['topic', 'key', 'value', 'headers', *sorted(also)])} (--compare {how.value})"
    )


def differing(
    first: Sequence[Record],
    second: Sequence[Record],
    how: Compare,
    ignored: Fields = frozenset(),
    also: Iterable[str] = frozenset(),
) -> list[str]:
    """The differences between two runs in up to `LINES_MAX` lines, and a line with the number of omitted lines."""
    also = frozenset(also)
    one, two = rows(first, ignored, also), rows(second, ignored, also)
    difference = compare(one, two, how)
    lines = [
        *_counted({**difference.lost, **difference.unexpected, **difference.duplicated}, one, two),
        *(f"changed in run 2: {each.words('run 1 has')}" for each in difference.changed),
        *(f"reordered in run 2: {each.words('run 1 has')}" for each in difference.reordered),
    ]
    more = len(lines) - LINES_MAX
    return [*lines[:LINES_MAX], *([f"and {more} more"] if more > 0 else [])]


def _counted(found: Iterable[Row], one: Iterable[Row], two: Iterable[Row]) -> Iterator[str]:
    first, second = Counter(one), Counter(two)
    for each in found:
        if not second[each]:
            yield f"in run 1 only: {each}"
        elif not first[each]:
            yield f"in run 2 only: {each}"
        else:
            yield f"{_often(first[each])} in run 1, {_often(second[each])} in run 2: {each}"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"
