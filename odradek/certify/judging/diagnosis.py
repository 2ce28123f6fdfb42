"""Find the partitions and offsets of a failed run's bad records, with which its diagnosis begins (`lints.causes`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice

from odradek.certify.judging.comparison import Difference, by_content
from odradek.certify.judging.findings import EVIDENCE_MAX, Finding, Kind, Reference
from odradek.certify.judging.rows import Row, row
from odradek.certify.lints.evidence import Lint
from odradek.certify.lints.failures import Bad, Place
from odradek.certify.runs.run import Run
from odradek.certify.services.specs import is_service
from odradek.topics import Record


def bad(
    run: Run, findings: Sequence[Finding], expected: Reference | None, warned: Iterable[Lint] = ()
) -> Bad:
    """Collect the wrong records of a run, with their partitions and offsets, as the input of its diagnosis.

    ``expected`` is None if only the user's check decides; then no single record is known to be wrong. ``warned`` are the
    lints of the job's runs without faults.
    """
    outputs = run.outputs
    difference = Difference() if expected is None else expected.difference(outputs.committed)
    places = _Places(outputs.written, expected)
    lost = [each for each in difference.lost if not outputs.may_still_come]
    strange = [*difference.unexpected, *(each.found for each in difference.changed)]
    strange += [each for order in difference.reordered for each in order.found]
    return Bad(
        kinds=frozenset(each.kind for each in findings),
        repeated=tuple(places.of(each, is_committed=True) for each in difference.duplicated),
        missing=tuple(places.of(each, is_committed=False) for each in lost if not is_service(each.topic)),
        missing_in=frozenset(each.topic for each in lost if not is_service(each.topic)),
        wrong=tuple(_wrong(difference, lost)),
        strange=tuple(place for each in strange for place in places.of(each, is_committed=True)),
        expected=0 if expected is None else sum(not is_service(each.topic) for each in expected.rows),
        plan=run.plan,
        exits=tuple(run.exits),
        is_held_up=bool(outputs.open_transactions),
        warned=tuple(warned),
    )


def _wrong(difference: Difference, lost: Iterable[Row]) -> Iterator[tuple[Kind, Row]]:
    for kind, found in (
        (Kind.LOST, lost),
        (Kind.DUPLICATED, difference.duplicated),
        (Kind.CHANGED, [each.found for each in difference.changed]),
        (Kind.UNEXPECTED, difference.unexpected),
    ):
        yield from ((kind, each) for each in islice(found, EVIDENCE_MAX))


class _Places:
    """The records of a run, by their content.

    `of` returns the partition and offset of each record that has the content of a row: of the committed records,
    or of all others.
    """

    def __init__(self, records: Iterable[Record], expected: Reference | None) -> None:
        self._records: defaultdict[Hashable, list[Record]] = defaultdict(list)
        ignored = frozenset() if expected is None else expected.ignored
        for each in records:
            self._records[by_content(row(each, ignored))].append(each)

    def of(self, one: Row, *, is_committed: bool) -> tuple[Place, ...]:
        return tuple(
            Place(
                each.topic,
                each.partition,
                each.offset,
                (each.producer_id, each.producer_epoch) if each.producer_id >= 0 else None,
            )
            for each in self._records[by_content(one)]
            if (each.outcome in (None, "committed")) is is_committed
        )
