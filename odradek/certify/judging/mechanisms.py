"""What a job could be exactly once by, as its runs without faults show it, and what a lint leaves of that.

A job without any of it promises nothing, however many faults it happens to survive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.judging.comparison import Compare
from odradek.certify.lints.evidence import Evidence, Lint
from odradek.certify.lints.transactions import Transaction, transactions

_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One thing by which a job could be exactly once. That it is, only runs with faults show."""

    name: str
    sentence: str
    example: str = ""
    """The exchange that shows it; empty where none does."""

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sentence": self.sentence, "example": self.example}


FENCED: Final = "fenced-positions"
STABLE: Final = "stable-id"
ELSEWHERE: Final = "positions-elsewhere"
READS_OUTPUT: Final = "reads-own-output"
CHECK: Final = "check"
KEYED: Final = "keyed"

_SAID: Final = {
    FENCED: "the transaction with the outputs has the positions of the input, with member and generation of the group: "
    "who lost its partitions is refused (KIP-447)",
    STABLE: "the transaction with the outputs has the positions of the input, and its transactional.id is the same at each "
    "start: the new producer fences the old one",
    ELSEWHERE: "the positions of the input are outside of Kafka: in a checkpoint, a file or a database",
    READS_OUTPUT: "the job reads its own output: it can find out what it has written",
    CHECK: "--check judges each run",
    KEYED: "--compare keyed allows that a record comes again",
}

LIFTED_BY: Final[Mapping[str, frozenset[str]]] = {
    "offsets-outside": frozenset({ELSEWHERE, READS_OUTPUT, CHECK, KEYED}),
    "auto-commit": frozenset({ELSEWHERE, CHECK}),
    "read-uncommitted": frozenset({CHECK}),
    "weak-producer": frozenset({CHECK, KEYED}),
    "second-producer": frozenset({CHECK, KEYED}),
    "spark-sink": frozenset({CHECK, KEYED}),
    "streams-at-least-once": frozenset({CHECK, KEYED}),
}
"""The lints of a run without faults that leave no promise, but where one of these mechanisms is seen as well.

Each of them speaks of something that no transaction holds: of a record that it does not contain, or of a position that is
committed without it. Any other lint caps nothing: what it warns of is found by a fault, or is held by what was seen besides
(`changing-id` where the positions are fenced).
"""

_MOOT_BY: Final[Mapping[str, frozenset[str]]] = {
    "offsets-outside": frozenset({ELSEWHERE, KEYED}),
    "auto-commit": frozenset({ELSEWHERE}),
    "changing-id": frozenset({FENCED}),
}
"""What needs no warning where one of these mechanisms is seen: it does no harm then."""


def mechanisms(one: Evidence, two: Evidence, compare: Compare, *, has_check: bool) -> list[Mechanism]:
    """What two runs without faults show, the strongest first; empty: the job promises nothing."""
    found = {
        FENCED: next(_fenced(one), None),
        STABLE: next(_stable(one, two), None),
        ELSEWHERE: next(_elsewhere(one), None),
        READS_OUTPUT: next(_reads_output(one), None),
        CHECK: "" if has_check else None,
        KEYED: "" if compare is Compare.KEYED else None,
    }
    return [
        Mechanism(name, _SAID[name], example.line if isinstance(example, Exchange) else "")
        for name, example in found.items()
        if example is not None
    ]


def caps(lints: Iterable[Lint], found: Sequence[Mechanism]) -> list[Lint]:
    """Those of a run without faults that leave no promise in spite of what was found."""
    seen = {each.name for each in found}
    return [each for each in lints if each.name in LIFTED_BY and not LIFTED_BY[each.name] & seen]


def warnings(lints: Iterable[Lint], found: Sequence[Mechanism]) -> list[Lint]:
    """Those of a run without faults that can do harm."""
    seen = {each.name for each in found}
    return [each for each in lints if not _MOOT_BY.get(each.name, frozenset()) & seen]


def _whole(evidence: Evidence) -> Iterator[Transaction]:
    """Committed transactions with outputs and positions of the input in them."""
    for each in transactions(evidence):
        if each.is_committed and each.outputs and each.positions:
            yield each


def _fenced(evidence: Evidence) -> Iterator[Exchange]:
    for transaction in _whole(evidence):
        for each in transaction.positions:
            if each.request.get("member_id") and each.request.get("generation_id", -1) >= 0:
                yield each


def _stable(one: Evidence, two: Evidence) -> Iterator[Exchange]:
    theirs = set(
        two.transactional_ids
    )  # of several instances each may have had nothing to do in one of the runs
    return (each.positions[0] for each in _whole(one) if each.transactional_id in theirs)


def _elsewhere(evidence: Evidence) -> Iterator[Exchange | str]:
    """Its positions come from no group: the job commits none, or asks for none.

    Of a producer without transactions a group's positions and those in a database are alike: a crash parts them from the
    records. So this counts where the outputs are in transactions, or are none of Kafka.
    """
    written = [
        each for each in evidence.exchanges if each.api == "Produce" and evidence.outputs & set(each.topics)
    ]
    if not all(each.transactional_id for each in written):
        return
    commits = [
        each for each in evidence.exchanges if each.api in _COMMITS and evidence.inputs & set(each.topics)
    ]
    groups = {each.group for each in commits}
    asked = any(each.api == "OffsetFetch" and each.group in groups for each in evidence.exchanges)
    if evidence.is_flink or not commits or not asked:
        yield next((each for each in evidence.exchanges if _reads(each, evidence.inputs)), "")


def _reads_output(evidence: Evidence) -> Iterator[Exchange]:
    """As one that looks things up. Of a topic whose positions it commits it is a further stage of a pipeline."""
    staged = {name for each in evidence.exchanges if each.api in _COMMITS for name in each.topics}
    looked_up = evidence.outputs - staged - evidence.inputs
    return (each for each in evidence.exchanges if _reads(each, looked_up))


def _reads(exchange: Exchange, topics: frozenset[str]) -> bool:
    return exchange.api == "Fetch" and bool(topics & set(exchange.topics))
