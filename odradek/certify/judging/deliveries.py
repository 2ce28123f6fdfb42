"""Explain differences of outputs by the deliveries of a share group: repeated ones, and records that the group gave up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.certify import share_groups
from odradek.certify.judging.comparison import Difference, by_content
from odradek.certify.judging.findings import Outputs, Reference
from odradek.certify.judging.rows import Row, row
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.failures import Bad, Case, Place
from odradek.topics import Record

LETTER: Final = ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset")
"""Headers of a record in a dead-letter queue that name the input record (KIP-1191)."""
LETTER_COUNT: Final = "__dlq.errors.delivery.count"
"""Header with the delivery count, which a fault may raise."""

_Record = tuple[share_groups.Key, int]
"""Topic and partition, and the offset."""


def explained(
    difference: Difference, reference: Reference, outputs: Outputs, evidence: Evidence, *, may_reject: bool
) -> Difference:
    """Move duplicates of redelivered input to ``redelivered``.

    With ``may_reject``, also move missing outputs to ``rejected``, if the job rejected as many records, or the group gave
    them up.
    """
    delivered, again = _delivered(evidence)
    rate = _outputs_per_record(reference, delivered)
    redelivered = _redelivered(difference.duplicated, reference, outputs, evidence, again, rate)
    found = replace(
        difference,
        duplicated=difference.duplicated - redelivered,
        redelivered=difference.redelivered + redelivered,
    )
    return _without_rejected(found, evidence, delivered, rate) if may_reject and outputs.finished else found


def _delivered(evidence: Evidence) -> tuple[set[_Record], list[int]]:
    """The records of the input that members have received, and the indices of the ShareFetches that delivered one again.

    If the delivery count shows that the trace does not have an earlier delivery, a member may have received that one.
    """
    received: set[_Record] = set()
    seen: Counter[_Record] = Counter()
    again: list[int] = []
    for each in share_groups.deliveries(evidence.exchanges):
        record = each.key, each.offset
        if each.key[0] in evidence.inputs and each.is_received:
            if record in received or each.delivery_count - 1 > seen[record]:
                again.append(each.number)
            received.add(record)
        seen[record] += 1
    return received, again


def _outputs_per_record(reference: Reference, delivered: Collection[_Record]) -> int | None:
    """Number of outputs of each input record; None if it is not the same for all."""
    written = sum(letter(each) is None for each in reference.records)
    rate, rest = divmod(written, len(delivered) or 1)
    return rate if rate and not rest else None


def _redelivered(
    duplicated: Counter[Row],
    reference: Reference,
    outputs: Outputs,
    evidence: Evidence,
    again: Sequence[int],
    rate: int | None,
) -> Counter[Row]:
    """The duplicates that were written after a redelivery. Each redelivery explains as many as an input record has outputs.

    Dead letters are sent at least once by the broker itself.
    """
    places = _places(outputs.committed, reference)
    case = Case(evidence, Bad(frozenset()))
    extra: list[tuple[int, Row]] = []
    found: Counter[Row] = Counter()
    for each, count in duplicated.items():
        records = places[by_content(each)]
        if any(letter(record) is not None for record in records):
            found[each] = count
            continue
        writes = [case.write_of(Place(one.topic, one.partition, one.offset)) for one in records]
        numbers = sorted(write.number for write in writes if write is not None)
        extra += [(number, each) for number in numbers[-count:]]
    used = 0
    for number, each in sorted(extra, key=lambda one: one[0]):
        before = bisect_left(again, number)
        if before and (rate is None or used < rate * before):
            used += 1
            found[each] += 1
    return found


def _without_rejected(
    difference: Difference, evidence: Evidence, delivered: Collection[_Record], rate: int | None
) -> Difference:
    accepted = {
        (each.key, each.offset)
        for each in share_groups.acknowledgements(evidence.exchanges)
        if each.type == share_groups.ACCEPT and each.was_taken
    }
    given_up = {record for record in delivered if record not in accepted}
    letters = Counter(
        {each: count for each, count in difference.unexpected.items() if letter(each) in given_up}
    )
    lost = difference.lost
    if not given_up or (rate is not None and lost.total() > rate * len(given_up)):
        lost = Counter()
    return replace(
        difference,
        lost=difference.lost - lost,
        unexpected=difference.unexpected - letters,
        rejected=lost + letters,
    )


def _places(records: Iterable[Record], reference: Reference) -> Mapping[Hashable, Sequence[Record]]:
    found: defaultdict[Hashable, list[Record]] = defaultdict(list)
    for each in records:
        found[by_content(row(each, reference.ignored))].append(each)
    return found


def letter(record: Record | Row) -> tuple[share_groups.Key, int] | None:
    """Topic, partition and offset of the record that a dead letter stands for; None for any other record."""
    found = dict(record.headers)
    topic, partition, offset = (str(found.get(name) or "") for name in LETTER)
    return ((topic, int(partition)), int(offset)) if partition.isdigit() and offset.isdigit() else None
