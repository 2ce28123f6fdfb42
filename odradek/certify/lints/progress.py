"""Positions that move otherwise than the outputs do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from odradek.certify.exchanges import Exchange, batches
from odradek.certify.lints.commits import commits, offsets_in
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.reading import TopicPartition, reads
from odradek.certify.lints.transactions import Transaction, transactions

LOST_MEMBER: Final = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
    }
)
"""Who is told so has lost its partitions to another member."""
_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
_ALIKE_MIN: Final = 2
"""So many transactions show how many records a job writes for each that it reads."""


def position_back(evidence: Evidence) -> Iterator[Lint]:
    """A position is committed that lies before the one that was committed until then."""
    for each in commits(evidence):
        if each.was_known and each.offset < each.before and not evidence.is_flink:
            topic, partition = each.key
            yield seen_at(
                each.exchange,
                "position-back",
                f"the committed position of {topic}-{partition} goes back from {each.before} to {each.offset}: the next "
                "start reads again what lies between. Commit no position of records that were read before",
            )


def revoked_batch(evidence: Evidence) -> Iterator[Lint]:
    """A member commits what it has lost to another one; what it wrote for that is there, for no transaction has it."""
    written = 0
    for number, exchange in enumerate(evidence.exchanges):
        if (
            exchange.api == "Produce"
            and not exchange.transactional_id
            and evidence.outputs & set(exchange.topics)
        ):
            written = number + 1
        if exchange.api == "OffsetCommit" and LOST_MEMBER & set(exchange.errors) and written:
            yield seen_at(
                exchange,
                "revoked-batch",
                f"OffsetCommit was refused with {', '.join(dict.fromkeys(exchange.errors))}: the partitions had gone to "
                "another member, and what was written for them is there all the same, and comes again. End the batch in "
                "the rebalance listener, or write it in a transaction with its positions",
            )


def positions_ahead(evidence: Evidence) -> Iterator[Lint]:
    """A transaction has positions of more records than it wrote for.

    Only of a job whose other transactions write the same number of records for each that they read; one that filters says
    nothing.
    """
    counted = [
        (each, *found) for each in transactions(evidence) if (found := _counts(evidence, each)) is not None
    ]
    rates = Counter(wrote / read for _, read, wrote in counted)
    for each, read, wrote in counted:
        rate, alike = rates.most_common(1)[0]
        if alike >= _ALIKE_MIN and 2 * alike > len(counted) and wrote < rate * read:
            yield seen_at(
                each.positions[0],
                "positions-ahead",
                f"a transaction of {each.transactional_id} commits positions of {read} records, and has {wrote} records for "
                f"them where others have {rate * read:.0f}: what was fetched and not processed is passed over. Commit the "
                "position behind the last record that was processed, not the position of the consumer",
            )


def _counts(evidence: Evidence, transaction: Transaction) -> tuple[int, int] | None:
    """How many records it read, by its positions, and how many it wrote; None where that is not known."""
    if not (transaction.is_committed and transaction.positions):
        return None
    begin = _positions_before(evidence, transaction)
    read = sum(
        len(_offsets_of(evidence, key, begin.get(key, 0), end))
        for each in transaction.positions
        for key, end in offsets_in(each)
    )
    wrote = sum(batch.get("count", 0) for each in transaction.outputs for _, _, batch in batches(each))
    return (read, wrote) if read else None


def _positions_before(evidence: Evidence, transaction: Transaction) -> dict[TopicPartition, int]:
    end = transaction.end
    found: dict[TopicPartition, int] = {}
    for each in commits(evidence):
        if evidence.exchanges[each.number] is end:
            break
        found[each.key] = each.offset
    return found


def _offsets_of(evidence: Evidence, key: TopicPartition, begin: int, end: int) -> set[int]:
    """Those of records, not of markers, that were fetched."""
    return {
        offset
        for read in reads(evidence)
        if read.key == key
        for first, last, count in read.batches
        if count
        for offset in range(max(first, begin), min(last + 1, end))
    }


def positions_elsewhere(evidence: Evidence) -> Lint | None:
    """No fault: it says why a run that waits for a lag of 0 may come to no end."""
    commit = next((each for each in evidence.exchanges if _is_commit(each, evidence)), None)
    asked = any(
        each.api == "OffsetFetch" and (not commit or each.group == commit.group)
        for each in evidence.exchanges
    )
    if asked and commit is not None:
        return None
    said = (
        "commits no position of its input"
        if commit is None
        else "never asks for the positions that it commits"
    )
    return Lint(
        "positions-elsewhere",
        f"the job {said}: it keeps them outside of Kafka, and a lag of 0 says nothing. Say with --until when it is done",
        commit.line if commit is not None else "",
        commit,
    )


def _is_commit(exchange: Exchange, evidence: Evidence) -> bool:
    return exchange.api in _COMMITS and bool(evidence.inputs & set(exchange.topics))
