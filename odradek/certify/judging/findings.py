"""The findings of one run, with evidence: lost, duplicated, torn, reordered, stuck and so on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from odradek.certify.judging.comparison import Compare, Difference, by_content, by_key, compare
from odradek.certify.judging.rows import Fields, Row, is_row, row, rows
from odradek.certify.judging.torn import torn
from odradek.topics import Record

EVIDENCE_MAX: Final = 20
"""Maximum number of records that a finding lists. The finding also contains the number of the other records."""


class Kind(Enum):
    """A kind of finding."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    TORN = "torn"
    REORDERED = "reordered"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"
    STUCK = "stuck"
    REFUSED = "refused by the check"
    UNFINISHED = "unfinished"
    """All instances ended with code 0 before the input was processed. Not a failure: a supervisor may start them again."""
    REDELIVERED = "redelivered"
    """Duplicates that the comparison, or the promise of at least once, allows. Not a failure."""
    REJECTED = "rejected"
    """Missing outputs of records that the job rejected, or a share group gave up. The user allows it: not a failure."""

    @property
    def is_failure(self) -> bool:
        return self not in (Kind.UNFINISHED, Kind.REDELIVERED, Kind.REJECTED)


class Ending(Enum):
    """A way in which a run can end."""

    FINISHED = "finished"
    """The job has finished: records missing from the outputs are lost."""
    UNFINISHED = "unfinished"
    """All instances ended with code 0 before the input was processed: missing records may still be written."""
    IDLE = "idle"
    """The job is alive but has requested no change for `Workload.patience_s`: it is stuck, and missing records are lost."""
    OVERDUE = "overdue"
    """The run exceeded its deadline, or instances ended with an error and none is restarted: the job is stuck."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a run, and the records that show it."""

    kind: Kind
    sentence: str
    evidence: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "sentence": self.sentence, "evidence": list(self.evidence)}


def failures(number: int) -> str:
    """The number of failures as text.

    >>> failures(1), failures(2)
    ('1 failure', '2 failures')
    """
    return "1 failure" if number == 1 else f"{number} failures"


def failed(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is a failure."""
    return any(each.kind.is_failure for each in findings)


def kinds_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The names of the findings' kinds, each once, in the order of the findings."""
    return tuple(dict.fromkeys(each.kind.value for each in findings))


@dataclass(frozen=True, slots=True)
class Outputs:
    """The records of the output topics at the end of a run, and how the run ended."""

    committed: Sequence[Record]
    """The records that read_committed consumers get."""
    written: Sequence[Record]
    """All records, including those of aborted and open transactions."""
    ending: Ending = Ending.FINISHED
    why_not: str = ""
    """Why the run did not finish; empty if it did."""
    open_transactions: Sequence[str] = field(default_factory=tuple)
    """Open transactions that hold back the last stable offset of the outputs at the end, as sentences."""
    left_open: Sequence[str] = field(default_factory=tuple)
    """Transactions that the job left open or prepared at services besides Kafka, as sentences."""
    file_names: frozenset[str] = frozenset()
    """The files of outputs in files, relative to the run's directory."""
    said: Sequence[Finding] = field(default_factory=tuple)
    """Findings of the user's check, which runs while the broker and the run's directory still exist."""

    @property
    def finished(self) -> bool:
        return self.ending is Ending.FINISHED

    @property
    def may_still_come(self) -> bool:
        """Whether missing records may still be written: the run ended before the job had finished."""
        return self.ending in (Ending.UNFINISHED, Ending.OVERDUE)


@dataclass(slots=True)
class Reference:
    """The expected outputs of each run."""

    records: Sequence[Record]
    how: Compare
    ignored: Fields = frozenset()
    also: frozenset[str] = frozenset()
    rows: Sequence[Row] = field(init=False)
    _with_unique_keys: frozenset[str] = field(init=False)
    """The outputs besides topics in which no key has two rows: another row with the same key is a changed one."""

    def __post_init__(self) -> None:
        self.rows = rows(self.records, self.ignored, self.also)
        keys = Counter((each.topic, each.key) for each in self.rows if is_row(each.topic))
        several = {topic for (topic, key), count in keys.items() if count > 1 or key is None}
        self._with_unique_keys = frozenset({topic for topic, _ in keys} - several)

    def difference(self, records: Iterable[Record]) -> Difference:
        return compare(self.rows, rows(records, self.ignored, self.also), self.how, self._identity)

    def _identity(self, row: Row) -> Hashable:
        return by_key(row) if row.topic in self._with_unique_keys else by_content(row)


Explain = Callable[[Difference], Difference]


def judge(
    reference: Reference | None, outputs: Outputs, explain: Explain = lambda found: found
) -> list[Finding]:
    """The findings of the run that wrote the outputs. If none is a failure (`failed`), the outputs are correct.

    The findings come from the comparison with the reference, if there is one, and from the user's check, if there is one.
    ``explain`` may move differences to those that are no failures.
    """
    difference = Difference() if reference is None else explain(reference.difference(outputs.committed))
    return [
        *_of_the_end(outputs, difference),
        *_of_the_records(reference, outputs, difference),
        *_said(outputs),
    ]


def stuck(outputs: Outputs) -> list[Finding]:
    """The findings of kind stuck: the run did not end, or it left a transaction open."""
    return [each for each in _of_the_end(outputs, Difference()) if each.kind is Kind.STUCK]


_MISSING: Final = frozenset({Kind.LOST, Kind.TORN, Kind.REFUSED})
"""Kinds of findings that are not failures while records may still be written.

A check that refuses the outputs may accept them when the missing records are written.
"""
_SUPERVISOR: Final = (
    "A supervisor that always restarts (--restart always, as Kubernetes does) starts the job again; "
    "a supervisor that restarts only after failures does not"
)


def _of_the_end(outputs: Outputs, difference: Difference) -> list[Finding]:
    found = []
    missing = _still_missing(outputs, difference)
    if outputs.ending is Ending.UNFINISHED:
        sentence = f"{outputs.why_not or 'all instances ended with code 0 before the input was processed'}. {_SUPERVISOR}"
        found.append(Finding(Kind.UNFINISHED, sentence, missing))
    elif not outputs.finished:
        found.append(Finding(Kind.STUCK, outputs.why_not or "the run did not end", missing))
    if outputs.open_transactions:
        sentence = "an open transaction holds back read_committed consumers of the output"
        found.append(Finding(Kind.STUCK, sentence, tuple(outputs.open_transactions)))
    if outputs.left_open:
        sentence = "a transaction was neither committed nor rolled back, and holds its locks"
        found.append(Finding(Kind.STUCK, sentence, tuple(outputs.left_open)))
    return found


def _still_missing(outputs: Outputs, difference: Difference) -> tuple[str, ...]:
    if not outputs.may_still_come:
        return ()
    counted = [f"{_count(difference.lost)} not written yet"] if difference.lost else []
    refused = [each for each in outputs.said if each.kind in _MISSING]
    said = [
        f"{each.sentence}: {line}" for each in refused for line in each.evidence or ("it printed nothing",)
    ]
    return (*counted, *said[:EVIDENCE_MAX])


def _said(outputs: Outputs) -> list[Finding]:
    return [each for each in outputs.said if not (outputs.may_still_come and each.kind in _MISSING)]


_REDELIVERED: Final = {
    True: "more than once, which the comparison allows",
    False: "more than once, after a share group delivered input again: at least once by design",
}


def _of_the_records(reference: Reference | None, outputs: Outputs, difference: Difference) -> list[Finding]:
    if reference is None or not (difference or difference.redelivered or difference.rejected):
        return []
    found = []
    if not outputs.may_still_come:
        found += _missing(reference, difference.lost, _Places(outputs.written, reference.ignored))
    places = _Places(outputs.committed, reference.ignored)
    for kind, counted, word in (
        (Kind.DUPLICATED, difference.duplicated, "more than once"),
        (Kind.UNEXPECTED, difference.unexpected, "that no run without faults wrote"),
        (Kind.REDELIVERED, difference.redelivered, _REDELIVERED[reference.how is Compare.KEYED]),
        (Kind.REJECTED, difference.rejected, "of input that was rejected, or reached the delivery limit"),
    ):
        if counted:
            found.append(Finding(kind, f"{_count(counted)} {word}", places.evidence(counted)))
    is_last_word = not (outputs.may_still_come and reference.how is Compare.KEYED)
    if difference.changed and is_last_word:
        evidence = tuple(
            f"{each} ({places.of(each.found)})" for each in list(difference.changed)[:EVIDENCE_MAX]
        )
        sentence = (
            f"{_count(difference.changed)} different from a run without faults (--ignore excludes fields)"
        )
        found.append(Finding(Kind.CHANGED, sentence, evidence))
    if difference.reordered and is_last_word:
        keys = tuple(map(str, difference.reordered[:EVIDENCE_MAX]))
        found.append(Finding(Kind.REORDERED, f"{len(difference.reordered)} keys", keys))
    return found


def _missing(reference: Reference, lost: Counter[Row], places: _Places) -> list[Finding]:
    found = torn(reference.rows, lost)
    findings = []
    is_of_topics = not any(is_row(each.topic) for each in reference.rows)
    if found and is_of_topics:
        rows = sum(found.values(), Counter[Row]())
        sentence = f"{_count(rows)} missing, while other output topics have the same keys complete"
        findings.append(Finding(Kind.TORN, sentence, places.evidence(rows)))
    elif found:
        for (output, complete), rows in found.items():
            have = f"{' and '.join(complete)} {'has' if len(complete) == 1 else 'have'}"
            sentence = f"{_count(rows)} missing in {output}, while {have} the same keys complete"
            findings.append(Finding(Kind.TORN, sentence, places.evidence(rows)))
    whole = lost - sum(found.values(), Counter[Row]())
    if whole:
        findings.append(Finding(Kind.LOST, f"{_count(whole)} missing", places.evidence(whole)))
    return findings


class _Places:
    """The places of each row's records: partition, offset, producer, epoch, outcome of their transaction.

    ``ignored`` are the fields of records that are left out of rows.
    """

    def __init__(self, records: Iterable[Record], ignored: Fields) -> None:
        self._records: defaultdict[Hashable, list[Record]] = defaultdict(list)
        for each in records:
            self._records[by_content(row(each, ignored))].append(each)

    def of(self, one: Row) -> str:
        return "; ".join(map(_place, self._records[by_content(one)])) or (
            "no such row" if is_row(one.topic) else "never written"
        )

    def evidence(self, counted: Iterable[Row]) -> tuple[str, ...]:
        return tuple(f"{each} ({self.of(each)})" for each in list(counted)[:EVIDENCE_MAX])


def _place(record: Record) -> str:
    if is_row(record.topic):
        return f"row {record.offset + 1}"
    said = record.place
    if record.producer_id >= 0:
        said += f", producer {record.producer_id} epoch {record.producer_epoch}"
    return said + (f", {record.outcome}" if record.outcome else ", no transaction")


def _count(counted: Mapping[Any, int]) -> str:
    number = sum(counted.values())
    return "1 record" if number == 1 else f"{number} records"
