"""Traces made by hand, in the format of the control port."""

from __future__ import annotations

from itertools import count
from typing import Any

from odradek.certify.exchanges import Exchange, exchanges

_NUMBERS = count(1)
COMMITTED = 1


def entry(
    api: str,
    request: dict[str, Any] | None = None,
    *,
    tx: str | None = None,
    producer: tuple[int, int] = (-1, -1),
    error: str = "NONE",
    peer: str = "127.0.0.1:5000",
    client_id: str = "app",
    answer: dict[str, Any] | None = None,
    at_ms: float | None = None,
    from_node: int | None = None,
) -> dict[str, Any]:
    number = next(_NUMBERS)
    transactions = [{"transactional_id": tx, "producer_id": producer[0], "producer_epoch": producer[1]}]
    return {
        "api": api,
        "version": 3,
        "client_id": client_id,
        "peer": peer,
        "from_node": from_node,
        "arrived_us": number if at_ms is None else int(at_ms * 1000),
        "transactions": transactions if tx or producer[0] >= 0 else [],
        "request": request or {},
        "answer": {"error": error, **(answer or {})},
        "outcome": "answered",
        "line": f"{api} {tx or ''}".strip(),
    }


def produce(
    topic: str,
    *,
    tx: str | None = None,
    producer: tuple[int, int] = (7, 0),
    acks: int = -1,
    base: int = 0,
    count: int = 1,
    at_ms: float | None = None,
    peer: str = "127.0.0.1:5000",
    error: str = "NONE",
) -> dict[str, Any]:
    """A Produce of one batch to partition 0, whose first record has the offset ``base``.

    ``at_ms`` is also the records' timestamp.
    """
    batch = {"producer_id": producer[0], "producer_epoch": producer[1], "count": count}
    batch["base_timestamp_ms"] = next(_NUMBERS) if at_ms is None else int(at_ms)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": {"batches": [batch]}}]}]
    request = {"transactional_id": tx, "acks": acks, "topic_data": data}
    answer = {"responses": [{"name": topic, "partition_responses": [{"index": 0, "base_offset": base}]}]}
    whose = producer if tx else (-1, -1)
    return entry(
        "Produce", request, tx=tx, producer=whose, answer=answer, at_ms=at_ms, peer=peer, error=error
    )


def fetch(
    topic: str,
    *,
    isolation: int = COMMITTED,
    offset: int = 0,
    found: bool = True,
    count: int = 0,
    peer: str = "127.0.0.1:5000",
) -> dict[str, Any]:
    """A Fetch whose response has ``count`` records (0: an unknown number), or none with ``found=False``."""
    partitions = [{"partition": 0, "fetch_offset": offset}]
    request = {"isolation_level": isolation, "topics": [{"topic_name": topic, "partitions": partitions}]}
    batch = {"base_offset": offset, "last_offset": offset + count - 1, "count": count} if count else {}
    records = {"batches": [batch]} if found else None
    partition = {"partition_index": 0, "records": records}
    answer = {"responses": [{"topic_name": topic, "partitions": [partition]}]}
    return entry("Fetch", request, answer=answer, peer=peer)


def offsets(
    topic: str,
    offset: int,
    *,
    tx: str | None = None,
    group: str = "g",
    member: str = "m",
    at_ms: float | None = None,
    error: str = "NONE",
    peer: str = "127.0.0.1:5000",
    producer: tuple[int, int] = (7, 0),
) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    request = {
        "group_id": group,
        "member_id": member,
        "generation_id": 1 if member else -1,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    api, whose = ("TxnOffsetCommit", producer) if tx else ("OffsetCommit", (-1, -1))
    return entry(api, request, tx=tx, at_ms=at_ms, error=error, peer=peer, producer=whose)


def init(
    tx: str, *, peer: str = "127.0.0.1:5000", timeout_ms: int = 60_000, raises: int = -1
) -> dict[str, Any]:
    """One InitProducerId request and its response. ``raises`` is the producer id whose epoch the client bumps
    (KIP-360); -1 if the producer starts."""
    request = {"transaction_timeout_ms": timeout_ms, "producer_id": raises}
    return entry("InitProducerId", request, tx=tx, peer=peer)


def end(
    tx: str,
    *,
    committed: bool = True,
    at_ms: float | None = None,
    error: str = "NONE",
    peer: str = "127.0.0.1:5000",
    producer: tuple[int, int] = (7, 0),
) -> dict[str, Any]:
    request = {"committed": committed}
    return entry("EndTxn", request, tx=tx, producer=producer, at_ms=at_ms, error=error, peer=peer)


def transaction(tx: str, offset: int, *, committed: bool = True) -> list[dict[str, Any]]:
    return [produce("out", tx=tx), offsets("in", offset, tx=tx), end(tx, committed=committed)]


def trace(*entries: dict[str, Any] | list[dict[str, Any]]) -> list[Exchange]:
    flat = [one for each in entries for one in (each if isinstance(each, list) else [each])]
    return exchanges(flat)


def share_fetch(
    *delivered: tuple[int, int, int],
    accepts: tuple[int, int] | None = None,
    error: str = "NONE",
    member: str = "m",
    outcome: str = "answered",
    lock_ms: int = 30_000,
    batches: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A ShareFetch of in-0 that delivers (first offset, last offset, delivery count) and may accept a range of offsets."""
    acquired = [
        {"first_offset": first, "last_offset": last, "delivery_count": times}
        for first, last, times in delivered
    ]
    data = [{"base_offset": first, "last_offset": last, "count": 1} for first, last, _ in delivered]
    partition = {
        "partition_index": 0,
        "error": "NONE",
        "acknowledge_error": error,
        "records": {"batches": data if batches is None else batches},
        "acquired_records": acquired,
    }
    answer = {
        "acquisition_lock_timeout_ms": lock_ms,
        "responses": [{"topic_name": "in", "partitions": [partition]}],
    }
    request = _shared(member, [(*accepts, [1])] if accepts else [])
    return {**entry("ShareFetch", request, answer=answer), "outcome": outcome}


def share_acknowledge(
    *acknowledged: tuple[int, int, list[int]],
    error: str = "NONE",
    member: str = "m",
    outcome: str = "answered",
) -> dict[str, Any]:
    """A ShareAcknowledge of in-0 with (first offset, last offset, types). ``error`` is the partition's."""
    partition = {"partition_index": 0, "error": error}
    answer = {"responses": [{"topic_name": "in", "partitions": [partition]}]}
    return {
        **entry("ShareAcknowledge", _shared(member, list(acknowledged)), answer=answer),
        "outcome": outcome,
    }


def _shared(member: str, acknowledged: list[tuple[int, int, list[int]]]) -> dict[str, Any]:
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in acknowledged
    ]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    return {
        "group_id": "g",
        "member_id": member,
        "topics": [{"topic_name": "in", "partitions": [partition]}],
    }
