"""Lints on committed offsets that do not match the outputs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from odradek.certify import share_groups
from odradek.certify.exchanges import Exchange, batches
from odradek.certify.lints.commits import commits
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.reading import TopicPartition, read_again, reads
from odradek.certify.lints.transactions import Transaction, transactions, was_taken

LOST_MEMBER: Final = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
    }
)
"""Errors for a member that has lost its partitions to another member."""
_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
_ALIKE_MIN: Final = 2
"""Minimum number of transactions from which the ratio of written to read records is derived."""


def position_back(evidence: Evidence) -> Iterator[Lint]:
    """Yield commits of an offset below the previously committed offset."""
    for each in commits(evidence):
        if each.was_known and each.offset < each.before and not evidence.is_flink:
            topic, partition = each.key
            yield seen_at(
                each.exchange,
                "position-back",
                f"the committed offset of {topic}-{partition} goes back from {each.before} to {each.offset}: the next "
                "start reads the records in between again. Commit no offset of records that were read before",
            )


def revoked_batch(evidence: Evidence) -> Iterator[Lint]:
    """Yield rejected OffsetCommits for a partition that the member has lost, if the job writes outside transactions.

    The member's outputs remain, and the partition's new member writes them again.
    """
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
                f"OffsetCommit was rejected with {', '.join(dict.fromkeys(exchange.errors))}: the partitions had moved to "
                "another member. The outputs of this batch were written nevertheless, and the other member writes them "
                "again. End the batch in the rebalance listener, or write it in a transaction with its offsets",
            )


def stale_batch(evidence: Evidence) -> Iterator[Lint]:
    """Yield transactions after a rebalance that have outputs of more records than their committed offsets cover.

    The job did not drop the records that it had read before the rebalance. This lint applies only to a job that writes the
    same number of records per input record in its other transactions.
    """
    counted = list(_counted(evidence))
    rate = _rate(counted)
    numbers = {id(each): number for number, each in enumerate(evidence.exchanges)}
    begins = [
        number
        for number, each in enumerate(evidence.exchanges)
        if each.api == "SyncGroup" and was_taken(each)
    ]
    again = [each.number for each in read_again(evidence)]
    before = 0
    for each, read, wrote in counted:
        number = numbers[id(each.positions[0])]
        rebalanced = [begin for begin in begins if before < begin < number]
        if rate and wrote > rate * read and rebalanced and any(rebalanced[0] < one < number for one in again):
            yield seen_at(
                each.positions[0],
                "revoked-batch",
                f"after a rebalance a transaction of {each.transactional_id} has {wrote} records but offsets of {read}: "
                "it contains records from before the rebalance, which were read again since. Drop unwritten "
                "records when partitions are revoked",
            )
        before = numbers[id(each.end)]


def positions_ahead(evidence: Evidence) -> Iterator[Lint]:
    """Yield transactions that commit offsets of more records than they wrote outputs for.

    The lint applies only to a job that writes the same number of records per input record in its other transactions. A job
    that filters is not reported.
    """
    counted = list(_counted(evidence))
    rate = _rate(counted)
    for each, read, wrote in counted:
        if wrote < rate * read:
            yield seen_at(
                each.positions[0],
                "positions-ahead",
                f"a transaction of {each.transactional_id} commits offsets of {read} records and has {wrote} outputs for "
                f"them instead of {rate * read:.0f}: fetched records that were not processed are skipped. Commit the "
                "offset after the last processed record, not the position of the consumer",
            )


def _rate(counted: Sequence[tuple[Transaction, int, int]]) -> float:
    """Number of output records per input record in most transactions; 0 if the number varies."""
    rates = Counter(wrote / read for _, read, wrote in counted)
    rate, alike = next(iter(rates.most_common(1)), (0.0, 0))
    return rate if alike >= _ALIKE_MIN and 2 * alike >= len(counted) else 0.0


def _counted(evidence: Evidence) -> Iterator[tuple[Transaction, int, int]]:
    """Yield (transaction, number of records that it read, according to its offsets, number of records that it wrote)."""
    wanted = _wanted(evidence)
    moved: Counter[int] = Counter()
    for each in commits(evidence):
        moved[id(each.exchange)] += _between(wanted.get(each.key, ()), each.before, each.offset)
    for transaction in transactions(evidence):
        read = sum(moved[id(each)] for each in transaction.positions)
        if transaction.is_committed and read > 0:
            yield transaction, read, sum(_count(each, evidence) for each in transaction.outputs)


def commits_ahead(evidence: Evidence, expected: int) -> Iterator[Lint]:
    """Yield OffsetCommits with offsets of more records than the broker has outputs for.

    ``expected`` is the number of outputs without faults. The lint applies only to a job that writes the same number of
    records per input record, as otherwise it is unknown which outputs belong to an input record.
    """
    wanted = _wanted(evidence)
    rate = expected / (sum(map(len, wanted.values())) or 1)
    if rate < 1 or rate != round(rate):
        return
    wrote = Wrote(evidence)
    committed: dict[TopicPartition, int] = {}
    for each in commits(evidence):
        committed[each.key] = max(each.offset, committed.get(each.key, 0))
        read = sum(_between(wanted.get(key, ()), 0, end) for key, end in committed.items())
        there = wrote.until(each.number)
        if each.is_outside and there < rate * read:
            yield seen_at(
                each.exchange,
                "positions-ahead",
                f"OffsetCommit has offsets of {read} records when {there} of their {rate * read:.0f} outputs are written: "
                "the next start skips fetched records that were not processed. Commit after the acknowledgement of "
                "the outputs",
            )


class Wrote:
    """The number of output records visible to consumers after each exchange."""

    def __init__(self, evidence: Evidence) -> None:
        numbers = {id(each): number for number, each in enumerate(evidence.exchanges)}
        ended = [each for each in transactions(evidence) if each.is_committed and each.end is not None]
        wrote = [(numbers[id(each.end)], _count(one, evidence)) for each in ended for one in each.outputs]
        wrote += [
            (number, _count(each, evidence))
            for number, each in enumerate(evidence.exchanges)
            if each.api == "Produce" and not each.transactional_id and was_taken(each)
        ]
        self._numbers = [number for number, _ in sorted(wrote)]
        self._totals = [0, *accumulate(count for _, count in sorted(wrote))]

    def until(self, number: int) -> int:
        return self._totals[bisect_left(self._numbers, number)]


def _count(produce: Exchange, evidence: Evidence) -> int:
    return sum(batch.get("count", 0) for topic, _, batch in batches(produce) if topic in evidence.outputs)


def _wanted(evidence: Evidence) -> dict[TopicPartition, list[int]]:
    """The sorted offsets of all fetched records by partition, without markers and aborted records."""
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for read in reads(evidence):
        for first, last, count in read.batches:
            if count:
                found[read.key].update(range(first, last + 1))
    return {key: sorted(offsets) for key, offsets in found.items()}


def _between(offsets: Sequence[int], begin: int, end: int) -> int:
    return bisect_left(offsets, end) - bisect_left(offsets, begin)


def positions_elsewhere(evidence: Evidence) -> Lint | None:
    """Lint for a job that commits no offsets of its input, or never fetches committed offsets; None for other jobs.

    This is no problem of the job, but explains why a run that waits for a lag of 0 may never end.
    """
    if not evidence.inputs or share_groups.consumes(evidence.exchanges, evidence.inputs):
        return None
    commit = next((each for each in evidence.exchanges if _is_commit(each, evidence)), None)
    asked = any(
        each.api == "OffsetFetch" and (not commit or each.group == commit.group)
        for each in evidence.exchanges
    )
    if asked and commit is not None:
        return None
    said = "commits no offset of its input" if commit is None else "never fetches the offsets that it commits"
    return Lint(
        "positions-elsewhere",
        f"the job {said}: it keeps its offsets outside Kafka, so its lag is meaningless. Set --until to say when the "
        "job is done",
        commit.line if commit is not None else "",
        commit,
    )


def _is_commit(exchange: Exchange, evidence: Evidence) -> bool:
    return exchange.api in _COMMITS and bool(evidence.inputs & set(exchange.topics))
