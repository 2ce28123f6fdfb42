"""Lints on how a job handles a failed batch or transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.certify.exchanges import Exchange, batches
from odradek.certify.lints.commits import offsets_in
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.processes import GOES_ON, LIFE, ConnectionMap
from odradek.certify.lints.reading import TopicPartition, read_again
from odradek.certify.lints.transactions import Transaction, transactions, was_taken
from odradek.certify.plans.faults import ABORTABLE

_ABORTABLE: Final = frozenset(ABORTABLE.values())
_STREAMS: Final = "-StreamThread-"
_UNKNOWN_END: Final = "answer_lost"
"""Outcome of a request that the broker handled although the client got no response."""
_ADDS: Final = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"})


def same_batch(evidence: Evidence) -> Iterator[Lint]:
    """Yield batches that a new producer wrote again after a lost response to EndTxn, although the transaction was committed.

    A job that first fetches its group's committed offsets (OffsetFetch) is not reported.
    """
    before: dict[str, Transaction] = {}
    numbers = _numbers(evidence)
    for each in transactions(evidence):
        last = before.get(each.transactional_id)
        if last is not None and last.end is not None and _is_the_same(last, each):
            span = evidence.exchanges[numbers[id(last.end)] : numbers[id(each.outputs[0])]]
            if not any(one.api == "OffsetFetch" for one in span):
                yield seen_at(
                    each.outputs[0],
                    "new-producer-same-batch",
                    f"the response to EndTxn of {each.transactional_id} was lost, but the transaction was committed. The "
                    "job made a new producer and wrote the same batch again. After initTransactions, fetch the group's "
                    "committed offsets, and continue from there",
                )
        before[each.transactional_id] = each


def _is_the_same(one: Transaction, two: Transaction) -> bool:
    if not (one.is_committed and one.end is not None and one.end.outcome == _UNKNOWN_END):
        return False
    if not (one.outputs and two.outputs and one.positions and two.positions):
        return False
    ours, theirs = _positions(one), _positions(two)
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(theirs[key] <= ours[key] for key in shared)


def _positions(transaction: Transaction) -> dict[TopicPartition, int]:
    return {key: offset for each in transaction.positions for key, offset in offsets_in(each)}


def _numbers(evidence: Evidence) -> dict[int, int]:
    return {id(each): number for number, each in enumerate(evidence.exchanges)}


def abort_missing(evidence: Evidence) -> Iterator[Lint]:
    """Yield abortable errors after which the job commits the transaction, or continues to read without ending it."""
    connections = ConnectionMap()
    failed: dict[str, tuple[Exchange, frozenset[str]]] = {}
    later: Counter[str] = Counter()
    for exchange in evidence.exchanges:
        connections.see(exchange)
        name = exchange.transactional_id
        if exchange.api in LIFE:
            later.update(each for each, (_, readers) in failed.items() if exchange.peer in readers)
        if not name or exchange.api == "FindCoordinator":
            continue
        if (
            name in failed
            and exchange.api == "EndTxn"
            and exchange.request.get("committed")
            and was_taken(exchange)
        ):
            if failed[name][0].api in _ADDS:
                yield _not_aborted(
                    failed[name][0], "the transaction was committed nevertheless, without the rejected part"
                )
            failed.pop(name)
        elif _ABORTABLE & set(exchange.errors):
            failed.setdefault(name, (exchange, connections.readers_of(name)))
            later[name] = 0
        else:
            failed.pop(name, None)
    for name, (exchange, _) in failed.items():
        if later[name] >= GOES_ON:
            yield _not_aborted(exchange, "the job reads on without aborting or making a new producer")


def _not_aborted(exchange: Exchange, said: str) -> Lint:
    errors = ", ".join(dict.fromkeys(exchange.errors))
    return seen_at(
        exchange,
        "abort-missing",
        f"{exchange.api} of {exchange.transactional_id} was rejected with {errors}, and {said}. Abort, seek to the "
        "committed offsets, and retry",
    )


def outputs_without_positions(evidence: Evidence) -> Iterator[Lint]:
    """Yield transactions with outputs and without offsets, if other transactions of the same id contain offsets.

    Kafka Streams is not reported: it commits the outputs of a punctuator without offsets.
    """
    ended = [each for each in transactions(evidence) if each.is_committed]
    names = {each.transactional_id for each in ended if each.positions}
    for each in ended:
        is_theirs = each.transactional_id in names and each.outputs and not each.positions
        if is_theirs and _STREAMS not in each.outputs[0].client_id:
            yield seen_at(
                each.outputs[0],
                "outputs-without-positions",
                f"a transaction of {each.transactional_id} has outputs and no offsets, while others have offsets: "
                "a process that starts at the committed offsets writes its outputs again. Put outputs and offsets in "
                "one transaction",
            )


def delivery_ignored(evidence: Evidence, *, is_lost: bool = False) -> Iterator[Lint]:
    """Yield batches outside transactions that were rejected or never acknowledged, although the job committed its offsets.

    A batch is reported only while the group has one member, as offsets of another member do not belong to the batch.
    ``is_lost``: whether a record was never written. If False, a later batch with as many records counts as the same
    batch, sent again by the job.
    """
    lives = _member_spans(evidence)
    again = [each.number for each in read_again(evidence)]
    for number, exchange, key, batch in _given_up(evidence):
        commit = _next_commit(evidence, number)
        if commit is None or any(number < each < commit for each in again):
            continue
        if sum(begin < commit and end > number for begin, end in lives) > 1:
            continue
        if not _is_sent_again(evidence, number, 0 if is_lost else commit, key, batch):
            said = ", ".join(dict.fromkeys(exchange.errors)) or "no response"
            yield seen_at(
                exchange,
                "delivery-ignored",
                f"a batch for {key[0]}-{key[1]} was not delivered ({said}), and the job committed its offsets nevertheless. "
                "Check each delivery report, or the future of each send, before the commit",
            )


def _member_spans(evidence: Evidence) -> list[tuple[int, int]]:
    """First and last request of each group member, as indices in the trace."""
    found: dict[str, tuple[int, int]] = {}
    for number, exchange in enumerate(evidence.exchanges):
        member = exchange.request.get("member_id")
        if member and exchange.group:
            found[member] = found.get(member, (number, number))[0], number
    return list(found.values())


def _given_up(evidence: Evidence) -> Iterator[tuple[int, Exchange, TopicPartition, Mapping[str, Any]]]:
    for number, exchange in enumerate(evidence.exchanges):
        is_outside = exchange.api == "Produce" and not exchange.transactional_id
        if is_outside and not was_taken(exchange) and exchange.outcome != "in_progress":
            for topic, partition, batch in batches(exchange):
                if topic in evidence.outputs:
                    yield number, exchange, (topic, partition), batch


def _next_commit(evidence: Evidence, number: int) -> int | None:
    """Index of the first successful OffsetCommit of the input after exchange ``number``; None if there is none.

    Only connections that were already used before that exchange count.
    """
    before = {each.peer for each in evidence.exchanges[:number]}
    for place in range(number + 1, len(evidence.exchanges)):
        each = evidence.exchanges[place]
        if (
            each.api == "OffsetCommit"
            and was_taken(each)
            and each.peer in before
            and evidence.inputs & set(each.topics)
        ):
            return place
    return None


def _is_sent_again(
    evidence: Evidence, number: int, commit: int, key: TopicPartition, batch: Mapping[str, Any]
) -> bool:
    """Whether ``batch``, or a batch that the job may have sent in its place, was written after ``number``.

    The client's retry has the same base sequence and base timestamp. The job's batch has as many records, and was
    sent before the exchange with index ``commit``.
    """
    for place, exchange in enumerate(evidence.exchanges[number + 1 :], number + 1):
        if exchange.api == "Produce" and was_taken(exchange):
            for topic, partition, other in batches(exchange):
                is_same = all(
                    batch.get(name) == other.get(name) for name in ("base_sequence", "base_timestamp_ms")
                )
                is_like_it = place < commit and batch.get("count") == other.get("count")
                if (topic, partition) == key and (is_same or is_like_it):
                    return True
    return False
