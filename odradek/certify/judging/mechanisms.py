"""The mechanisms by which a job could be exactly once, as its runs without faults show them, and the lints that defeat them.

A job without any mechanism gets the verdict "no promise", even if it survives all faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify import share_groups
from odradek.certify.exchanges import Exchange
from odradek.certify.judging import service_mechanisms as services
from odradek.certify.judging.comparison import Compare
from odradek.certify.lints.evidence import Evidence, Lint
from odradek.certify.lints.transactions import Transaction, transactions

Names = frozenset[str]
_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism that could make a job exactly once. Only runs with faults show whether it does."""

    name: str
    sentence: str
    example: str = ""
    """The exchange that shows the mechanism; empty if none does."""

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sentence": self.sentence, "example": self.example}


FENCED: Final = "fenced-positions"
STABLE: Final = "stable-id"
ELSEWHERE: Final = "positions-elsewhere"
READS_OUTPUT: Final = "reads-own-output"
CHECK: Final = "check"
KEYED: Final = "keyed"
SHARED: Final = "share-group"
NAMED_FILES: Final = "named-files"

_SENTENCES: Final = {
    FENCED: "the transaction of the outputs contains the input's offsets with the member and generation of the group: "
    "a member that has lost its partitions is fenced (KIP-447)",
    STABLE: "the transaction of the outputs contains the input's offsets, and its transactional.id is the same at each "
    "start: the new producer fences the old one",
    ELSEWHERE: "the input's offsets are stored outside Kafka: in a checkpoint, a file or a database",
    READS_OUTPUT: "the job reads its own output, so it can find out what it has written",
    CHECK: "--check judges each run",
    KEYED: "--compare keyed allows duplicates",
    SHARED: "a share group delivers each record of the input again until it is acknowledged: at least once",
    NAMED_FILES: "the files have the same names in both runs, so that a file that is written again replaces the first one",
    **services.SENTENCES,
}

_REPEATABLE: Final = (services.POSITIONS, services.INBOX, services.UPSERT, services.KEYS, NAMED_FILES)
"""Mechanisms that make it harmless to process a record of the input again."""
LIFTED_BY: Final[Mapping[str, frozenset[str]]] = {
    "offsets-outside": frozenset({ELSEWHERE, READS_OUTPUT, CHECK, KEYED, *_REPEATABLE, services.TWO_PHASES}),
    "auto-commit": frozenset({ELSEWHERE, CHECK, services.POSITIONS}),
    "offset-before-database": frozenset({CHECK, services.POSITIONS}),
    "dual-write": frozenset({CHECK, KEYED}),
    "dedup-outside-transaction": frozenset({CHECK, KEYED, services.POSITIONS, services.UPSERT}),
    "not-idempotent-upsert": frozenset({CHECK, services.POSITIONS, services.INBOX}),
    "outbox-deleted-early": frozenset({CHECK}),
    "prepared-forgotten": frozenset({CHECK}),
    "do-nothing-hides": frozenset({CHECK}),
    "no-idempotency-key": frozenset({CHECK, KEYED}),
    "new-idempotency-key": frozenset({CHECK, KEYED}),
    "read-uncommitted": frozenset({CHECK}),
    "weak-producer": frozenset({CHECK, KEYED}),
    "second-producer": frozenset({CHECK, KEYED}),
    "never-renews": frozenset({CHECK, KEYED}),
    "spark-sink": frozenset({CHECK, KEYED}),
    "streams-at-least-once": frozenset({CHECK, KEYED}),
}
"""The lints that defeat mechanisms for exactly-once: name of the lint -> the only mechanisms that survive it.

Each of these lints concerns a record or an offset that is written outside the transaction. Any other lint defeats
no mechanism, because a fault shows its effect, or because a mechanism makes it harmless (`changing-id` if offsets
are fenced).
"""

_HARMLESS_WITH: Final[Mapping[str, frozenset[str]]] = {
    "offsets-outside": frozenset({ELSEWHERE, KEYED, *_REPEATABLE, services.TWO_PHASES}),
    "auto-commit": frozenset({ELSEWHERE, services.POSITIONS}),
    "offset-before-database": frozenset({services.POSITIONS}),
    "dual-write": frozenset({KEYED}),
    "not-idempotent-upsert": frozenset({services.POSITIONS, services.INBOX}),
    "changing-id": frozenset({FENCED}),
}
"""Lints that are harmless, and need no warning, if the job has one of the mechanisms listed for the lint."""


def mechanisms(
    one: Evidence,
    two: Evidence,
    compare: Compare,
    *,
    has_check: bool,
    is_at_least_once: bool = False,
    files: tuple[Names, Names] = (frozenset(), frozenset()),
) -> list[Mechanism]:
    """The mechanisms for exactly-once that two runs without faults show, the strongest first.

    With ``is_at_least_once``, share groups are one too: they promise no more. ``files`` are the names of the files that the
    runs have written.

    Without any mechanism, the verdict is "no promise".
    """
    found = {
        FENCED: next(_fenced(one), None),
        STABLE: next(_stable(one, two), None),
        **services.found(one, two),
        ELSEWHERE: next(_elsewhere(one), None),
        READS_OUTPUT: next(_reads_output(one), None),
        CHECK: "" if has_check else None,
        KEYED: "" if compare is Compare.KEYED else None,
        SHARED: "" if is_at_least_once else None,
        NAMED_FILES: "" if len(files[0]) > 1 and files[0] == files[1] else None,
    }
    return [
        Mechanism(name, _SENTENCES[name], example.line if isinstance(example, Exchange) else "")
        for name, example in found.items()
        if example is not None
    ]


def caps(lints: Iterable[Lint], found: Sequence[Mechanism]) -> list[Lint]:
    """The lints of a run without faults that defeat every mechanism for exactly-once in ``found``."""
    seen = {each.name for each in found}
    return [each for each in lints if each.name in LIFTED_BY and not LIFTED_BY[each.name] & seen]


def warnings(lints: Iterable[Lint], found: Sequence[Mechanism]) -> list[Lint]:
    """The lints of a run without faults, except those that a mechanism in ``found`` makes harmless."""
    seen = {each.name for each in found}
    return [each for each in lints if not _HARMLESS_WITH.get(each.name, frozenset()) & seen]


def _with_outputs_and_offsets(evidence: Evidence) -> Iterator[Transaction]:
    """Committed transactions that contain both outputs and offsets of the input."""
    for each in transactions(evidence):
        if each.is_committed and each.outputs and each.positions:
            yield each


def _fenced(evidence: Evidence) -> Iterator[Exchange]:
    for transaction in _with_outputs_and_offsets(evidence):
        for each in transaction.positions:
            if each.request.get("member_id") and each.request.get("generation_id", -1) >= 0:
                yield each


def _stable(one: Evidence, two: Evidence) -> Iterator[Exchange]:
    theirs = set(
        two.transactional_ids
    )  # with several instances, some may have had no input in one of the runs
    return (each.positions[0] for each in _with_outputs_and_offsets(one) if each.transactional_id in theirs)


def _elsewhere(evidence: Evidence) -> Iterator[Exchange | str]:
    """Yield one Fetch of the input ("" if there is none) if the job keeps its offsets outside of Kafka's groups.

    A job does so if it commits no offsets of the input, or never fetches the committed offsets. For a producer without
    transactions it makes no difference whether offsets are in a group or in a database: after a crash, the offsets may
    not match the records. So the mechanism counts only if the outputs are written in transactions, or not to Kafka. Of
    outputs at services the trace shows more: whether offsets are in the transaction of the rows.
    """
    written = [
        each for each in evidence.exchanges if each.api == "Produce" and evidence.outputs & set(each.topics)
    ]
    is_shared = share_groups.consumes(evidence.exchanges, evidence.inputs)
    if services.are_seen(evidence) or is_shared or not all(each.transactional_id for each in written):
        return
    commits = [
        each for each in evidence.exchanges if each.api in _COMMITS and evidence.inputs & set(each.topics)
    ]
    groups = {each.group for each in commits}
    asked = any(each.api == "OffsetFetch" and each.group in groups for each in evidence.exchanges)
    if evidence.is_flink or not commits or not asked:
        yield next((each for each in evidence.exchanges if _reads(each, evidence.inputs)), "")


def _reads_output(evidence: Evidence) -> Iterator[Exchange]:
    """Fetches of the job's own output topics.

    An output topic whose offsets the job commits does not count: it is the next stage of a pipeline.
    """
    staged = {name for each in evidence.exchanges if each.api in _COMMITS for name in each.topics}
    looked_up = evidence.outputs - staged - evidence.inputs
    return (each for each in evidence.exchanges if _reads(each, looked_up))


def _reads(exchange: Exchange, topics: frozenset[str]) -> bool:
    return exchange.api == "Fetch" and bool(topics & set(exchange.topics))
