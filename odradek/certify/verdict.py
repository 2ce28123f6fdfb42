"""The verdict on one run: lost, duplicated, torn, reordered, stuck and so on, each with its evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Any, Final

from odradek.certify.comparison import Compare, Difference, Fields, Row, compare, row, rows
from odradek.topics import Record

EVIDENCE_MAX: Final = 20
"""Records that a finding shows; it counts the others."""


class Kind(Enum):
    """What is wrong with a run."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    TORN = "torn"
    REORDERED = "reordered"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"
    STUCK = "stuck"
    REFUSED = "refused by the check"
    UNFINISHED = "unfinished"
    """All instances ended with code 0 before the input was done. No failure: a supervisor may start them again."""
    REDELIVERED = "redelivered"
    """Repeats that the comparison allows. No failure."""

    @property
    def is_failure(self) -> bool:
        return self not in (Kind.UNFINISHED, Kind.REDELIVERED)


class Ending(Enum):
    """How a run came to its end."""

    FINISHED = "finished"
    """The job has done its work: what is missing in the outputs is lost."""
    UNFINISHED = "unfinished"
    """All instances ended with code 0 before the input was done: what is missing may still come."""
    IDLE = "idle"
    """The job is alive, and asks for no change any more (`Workload.patience_s`): stuck, and what is missing is lost."""
    OVERDUE = "overdue"
    """The deadline of the run passed, or instances ended with an error and none starts again: stuck."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and the records that show it."""

    kind: Kind
    sentence: str
    evidence: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "sentence": self.sentence, "evidence": list(self.evidence)}


def failures(number: int) -> str:
    """
    >>> failures(1), failures(2)
    ('1 failure', '2 failures')
    """
    return "1 failure" if number == 1 else f"{number} failures"


def kinds_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What is wrong, each kind once, in the order of the findings."""
    return tuple(dict.fromkeys(each.kind.value for each in findings))


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the output topics held when a run was over."""

    committed: Sequence[Record]
    """As read_committed returns them."""
    written: Sequence[Record]
    """All of them, those of aborted and open transactions too."""
    ending: Ending = Ending.FINISHED
    why_not: str = ""
    """Of a run that did not finish."""
    open_transactions: Sequence[str] = field(default_factory=tuple)
    """Those that hold up read_committed readers of the outputs at the end, as sentences."""

    @property
    def finished(self) -> bool:
        return self.ending is Ending.FINISHED


@dataclass(slots=True)
class Reference:
    """What each run has to come to."""

    records: InitVar[Sequence[Record]]
    how: Compare
    ignored: Fields = frozenset()
    rows: Sequence[Row] = field(init=False)

    def __post_init__(self, records: Sequence[Record]) -> None:
        self.rows = rows(records, self.ignored)


def judge(reference: Reference, outputs: Outputs) -> list[Finding]:
    """All that is wrong with the run; empty: its outputs are those of the reference run."""
    found = stuck(outputs)
    difference = compare(reference.rows, rows(outputs.committed, reference.ignored), reference.how)
    return found + _findings(reference, outputs, difference)


def stuck(outputs: Outputs) -> list[Finding]:
    """What has no end: the run itself, or a transaction that it left open."""
    found = []
    if not outputs.finished:
        found.append(Finding(Kind.STUCK, outputs.why_not or "the run came to no end"))
    if outputs.open_transactions:
        sentence = "an open transaction holds up read_committed readers of the output"
        found.append(Finding(Kind.STUCK, sentence, tuple(outputs.open_transactions)))
    return found


def _findings(reference: Reference, outputs: Outputs, difference: Difference) -> list[Finding]:
    ignored = reference.ignored
    found = []
    lost = difference.lost
    torn = _torn(reference, lost)
    if torn:
        found.append(
            Finding(
                Kind.TORN,
                f"{_count(torn)} missing, while other output topics have the same keys complete",
                tuple(_evidence(torn, outputs.written, ignored)),
            )
        )
    whole = lost - torn
    if whole:
        found.append(
            Finding(Kind.LOST, f"{_count(whole)} missing", tuple(_evidence(whole, outputs.written, ignored)))
        )
    for kind, counted, word in (
        (Kind.DUPLICATED, difference.duplicated, "more than once"),
        (Kind.UNEXPECTED, difference.unexpected, "that no run without faults has"),
    ):
        if counted:
            evidence = tuple(_evidence(counted, outputs.committed, ignored))
            found.append(Finding(kind, f"{_count(counted)} {word}", evidence))
    if difference.reordered:
        keys = [f"{topic}: key {key}" for topic, key in difference.reordered[:EVIDENCE_MAX]]
        found.append(Finding(Kind.REORDERED, f"{len(difference.reordered)} keys", tuple(keys)))
    return found


def _torn(reference: Reference, lost: Mapping[Row, int]) -> Counter[Row]:
    """Lost rows whose key is complete in another output topic: a part of what belongs together is visible."""
    topics: defaultdict[str, set[str]] = defaultdict(set)
    incomplete = {(topic, key) for topic, key, _ in lost}
    for topic, key, _ in reference.rows:
        topics[key].add(topic)
    return Counter(
        {
            each: count
            for each, count in lost.items()
            if each[1] and any((topic, each[1]) not in incomplete for topic in topics[each[1]])
        }
    )


def _evidence(counted: Mapping[Row, int], records: Iterable[Record], ignored: Fields) -> Iterable[str]:
    """Each row with all of its records: partition, offset, producer, epoch, outcome of its transaction."""
    places: defaultdict[Row, list[Record]] = defaultdict(list)
    for record in records:
        places[row(record, ignored)].append(record)
    for topic, key, value in list(counted)[:EVIDENCE_MAX]:
        shown = f"{topic}: {f'key {key}, ' if key else ''}{value[:200]}"
        copies = "; ".join(map(_place, places[topic, key, value])) or "never written"
        yield f"{shown} ({copies})"


def _place(record: Record) -> str:
    said = record.place
    if record.producer_id >= 0:
        said += f", producer {record.producer_id} epoch {record.producer_epoch}"
    return said + (f", {record.outcome}" if record.outcome else ", no transaction")


def _count(counted: Mapping[Row, int]) -> str:
    number = sum(counted.values())
    return "1 record" if number == 1 else f"{number} records"
