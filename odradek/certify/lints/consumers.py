"""How a job reads its input, and how it commits the positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints.evidence import Evidence, Lint

_READ_COMMITTED: Final = 1
_JOINS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
_AUTO_COMMIT_MS: Final = 1000


def read_uncommitted(evidence: Evidence) -> Iterator[Lint]:
    for exchange in evidence.exchanges:
        if exchange.api == "Fetch" and exchange.request.get("isolation_level") != _READ_COMMITTED:
            topics = evidence.inputs & set(exchange.topics)
            if topics:
                yield Lint(
                    "read-uncommitted",
                    f"the consumer reads {', '.join(sorted(topics))} with read_uncommitted: it gets records of transactions "
                    "that abort. Set isolation.level=read_committed",
                    exchange.line,
                )


def offsets_outside(evidence: Evidence) -> Iterator[Lint]:
    commits = [
        each
        for each in evidence.exchanges
        if each.api == "OffsetCommit" and evidence.inputs & set(each.topics) and each.succeeded
    ]
    if not commits or evidence.is_flink:
        return
    automatic = evidence.has_times and _is_automatic(commits)
    how = "enable.auto.commit commits" if automatic else "the consumer commits"
    if evidence.transactional_ids:
        remedy = "Set enable.auto.commit=false, and send" if automatic else "Send"
        sentence = (
            f"{how} the offsets of its input outside of the transaction: a crash between the two loses records or doubles "
            f"them. {remedy} the offsets with sendOffsetsToTransaction"
        )
    else:
        sentence = (
            f"{how} the offsets, and no producer is transactional: a crash between Produce and OffsetCommit loses records "
            "or doubles them"
        )
    yield Lint("auto-commit" if automatic else "offsets-outside", sentence, commits[0].line)


def _is_automatic(commits: Sequence[Exchange]) -> bool:
    """Clients that commit by themselves do so at regular times; a program's own commits follow its work."""
    gaps_ms = [(two.arrived_us - one.arrived_us) / 1000 for one, two in pairwise(commits)]
    if not gaps_ms:
        return False
    middle = sorted(gaps_ms)[len(gaps_ms) // 2]
    return middle >= _AUTO_COMMIT_MS and all(abs(gap - middle) < 0.2 * middle for gap in gaps_ms)


def no_fencing(evidence: Evidence) -> Iterator[Lint]:
    """Only of a group with members: a job that takes its partitions by itself has no generation to name."""
    groups = {each.group for each in evidence.exchanges if each.api in _JOINS}
    named = set[str | None]()
    for exchange in evidence.exchanges:
        if exchange.api != "TxnOffsetCommit" or exchange.group not in groups:
            continue
        if exchange.request.get("member_id"):
            named.add(exchange.transactional_id)
            continue
        # Clients forget their member when the group has lost it: what they give is the metadata of now.
        when = " as it was when the records were read" if exchange.transactional_id in named else ""
        yield Lint(
            "no-group-metadata",
            "TxnOffsetCommit names neither generation nor member: a consumer that lost its partitions is not fenced "
            f"(KIP-447). Give sendOffsetsToTransaction the consumer's group metadata{when}",
            exchange.line,
        )
