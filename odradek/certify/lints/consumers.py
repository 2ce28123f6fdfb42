"""Lints on how a job reads its input, and how it commits offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from odradek.certify.lints.commits import Commit, commits, offsets_in
from odradek.certify.lints.evidence import Evidence, Lint, seen_at

_READ_COMMITTED: Final = 1
_NUMBER: Final = re.compile(r"(\d+)\D*$")
_JOINS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
_WORK: Final = frozenset({"Produce", "EndTxn"})
_AUTO_COMMIT_MS: Final = 1000
_GAPS_MIN: Final = 2
_AT_ONCE_US: Final = 50_000


def read_uncommitted(evidence: Evidence) -> Iterator[Lint]:
    for exchange in evidence.exchanges:
        if exchange.api == "Fetch" and exchange.request.get("isolation_level") != _READ_COMMITTED:
            topics = evidence.inputs & set(exchange.topics)
            if topics:
                yield seen_at(
                    exchange,
                    "read-uncommitted",
                    f"the consumer reads {', '.join(sorted(topics))} with read_uncommitted, so it gets records of aborted "
                    "transactions. Set isolation.level=read_committed",
                )


def offsets_outside(evidence: Evidence) -> Iterator[Lint]:
    outside = ahead_of_transactions(evidence)
    if not outside or evidence.is_flink:
        return
    automatic = is_automatic(evidence)
    how = "enable.auto.commit commits" if automatic else "the consumer commits"
    if evidence.transactional_ids:
        remedy = "Set enable.auto.commit=false, and send" if automatic else "Send"
        sentence = (
            f"{how} the offsets of its input outside the transaction: a crash between the offset commit and EndTxn "
            f"loses or duplicates records. {remedy} the offsets with sendOffsetsToTransaction"
        )
    else:
        services = " and ".join(sorted({each.service for each in evidence.exchanges if each.service}))
        sentence = (
            f"{how} the offsets, and no producer is transactional: a crash between Produce and OffsetCommit loses or "
            "duplicates records"
        )
        if services:
            sentence = (
                f"{how} the offsets, and not the transaction at {services}: a crash between the two loses or duplicates "
                "rows or requests"
            )
    name = "auto-commit" if automatic else "offsets-outside"
    if not automatic and not any(_follows_work(evidence, each.exchange.arrived_us) for each in outside):
        sentence += ". If enable.auto.commit is on (the default of most clients), disable it"
    yield seen_at(outside[0].exchange, name, sentence)


def ahead_of_transactions(evidence: Evidence) -> list[Commit]:
    """The OffsetCommits that advance an offset.

    An OffsetCommit that repeats an offset committed by a transaction is not included.
    """
    found = list(commits(evidence))
    inside = {(each.exchange.group, each.key) for each in found if not each.is_outside}
    return [
        each
        for each in found
        if each.is_outside and ((each.exchange.group, each.key) not in inside or each.offset > each.before)
    ]


def is_automatic(evidence: Evidence) -> bool:
    """Whether the client commits automatically: at regular intervals, and not immediately after Produce or EndTxn.

    A run of one second contains one or two commits, which do not show the difference.
    """
    sent = ahead_of_transactions(evidence) if evidence.has_times else []
    arrived = list(dict.fromkeys(each.exchange.arrived_us for each in sent))
    gaps_ms = [(two - one) / 1000 for one, two in pairwise(arrived)]
    if len(gaps_ms) < _GAPS_MIN:
        return False
    middle = sorted(gaps_ms)[len(gaps_ms) // 2]
    is_regular = middle >= _AUTO_COMMIT_MS and all(abs(gap - middle) < 0.2 * middle for gap in gaps_ms)
    return is_regular and not all(_follows_work(evidence, each) for each in arrived)


def _follows_work(evidence: Evidence, arrived_us: int) -> bool:
    return any(
        (each.api in _WORK or each.request.get("is_write"))
        and 0 <= arrived_us - each.arrived_us < _AT_ONCE_US
        for each in evidence.exchanges
    )


def _has_id_by_partition(evidence: Evidence) -> bool:
    """Whether each input partition has its own transactional id that ends with the partition's number.

    Then the producer of the partition's next owner fences the previous producer. False for a single partition, because
    the number at the end of its id may be a coincidence.
    """
    found = {
        (exchange.transactional_id or "", key)
        for exchange in evidence.exchanges
        if exchange.api == "TxnOffsetCommit"
        for key, _ in offsets_in(exchange)
        if key[0] in evidence.inputs
    }
    ends = [(_NUMBER.search(name), partition) for name, (_, partition) in found]
    return len(found) > 1 and all(
        number is not None and int(number[1]) == partition for number, partition in ends
    )


def no_fencing(evidence: Evidence) -> Iterator[Lint]:
    """Yield a lint for each TxnOffsetCommit without a member id.

    Only commits of groups with members count: a job that assigns partitions to itself has no generation.
    """
    groups = {each.group for each in evidence.exchanges if each.api in _JOINS}
    if _has_id_by_partition(evidence):
        return
    named = set[str | None]()
    for exchange in evidence.exchanges:
        if exchange.api != "TxnOffsetCommit" or exchange.group not in groups:
            continue
        if exchange.request.get("member_id"):
            named.add(exchange.transactional_id)
            continue
        # A client forgets its member id when it loses the membership, so the group metadata must be read with the records.
        when = " as it was when the records were read" if exchange.transactional_id in named else ""
        yield seen_at(
            exchange,
            "no-group-metadata",
            "TxnOffsetCommit contains neither generation nor member: a consumer that has lost its partitions is not fenced "
            f"(KIP-447). Pass the consumer's group metadata to sendOffsetsToTransaction{when}",
        )
