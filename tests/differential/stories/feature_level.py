"""Clusters with transaction.version 1 and 0."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import Story, story


@story("feature-level-1", "tv1")
def handshake(s: Story) -> None:
    """ApiVersions returns the finalized feature level transaction.version=1."""
    for v in (3, 4):
        answer = s.quiet("api_versions", v, client_software_name="a", client_software_version="1")
        rows = [row for row in answer["finalized_features"] if row["name"] == "transaction.version"]
        s.put(f"api_versions v{v}", rows)


def _commit_and_abort(s: Story, *, new: bool) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.start(t, new)
    p.end(True, new)
    p.start(t, new, 0 if new else 1)
    p.end(False, new)
    s.fetch(t, isolation_level=1)


@story("feature-level-1", "tv1")
def old_protocol(s: Story) -> None:
    _commit_and_abort(s, new=False)


@story("feature-level-1", "tv1")
def new_requests(s: Story) -> None:
    """The request version counts, not the feature level: Produce v12 adds partitions, and EndTxn v5 bumps the epoch."""
    _commit_and_abort(s, new=True)


@story("feature-level-1", "tv1")
def init_while_ongoing(s: Story) -> None:
    """When InitProducerId aborts an open transaction, the epoch changes differently at level 1 than at level 2."""
    for new in (False, True):
        t, p = s.topic(), Producer(s, f"tx{new}")
        p.start(t, new)
        body: dict[str, Any] = {"transactional_id": p.tx, "transaction_timeout": 60000}
        s.ask("init_producer_id", 5, retry=(51,), note="TV2" if new else "TV1", **body)
        p.send(t, 1, new=new, note="the old epoch")
        s.fetch(t)


@story("feature-level-0", "tv0")
def old_protocol_at_0(s: Story) -> None:
    _commit_and_abort(s, new=False)


@story("feature-level-0", "tv0")
def new_requests_at_0(s: Story) -> None:
    """At level 0 the new requests get UNSUPPORTED_VERSION: stored states have no field for the client's protocol.

    Kafka then leaves the transactional id pending forever.
    """
    init: dict[str, Any] = {"transaction_timeout": 60000}
    t, p = s.topic(), Producer(s, "produce")
    p.send(t, 0, v=12, retry=())
    s.ask("init_producer_id", 4, note="after Produce v12", transactional_id=p.tx, **init)
    q = Producer(s, "end")
    q.start(t, False)
    s.ask("end_txn", 5, committed=True, **q.who())
    s.ask("init_producer_id", 4, note="after EndTxn v5", transactional_id=q.tx, **init)
    r = Producer(s, "offsets")
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    topics = [{"name": t.name, "partitions": [row]}]
    s.ask("txn_offset_commit", 5, group_id=s.name("g"), topics=topics, **r.who())
    s.ask("init_producer_id", 4, note="after TxnOffsetCommit v5", transactional_id=r.tx, **init)
