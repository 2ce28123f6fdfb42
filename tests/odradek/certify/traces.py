"""Traces made by hand, in the format of the control port."""

from __future__ import annotations

import re
from base64 import b64encode
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


def trace(*entries: dict[str, Any] | Exchange | list[Any]) -> list[Exchange]:
    found: list[Exchange] = []
    for each in entries:
        if isinstance(each, list):
            found += trace(*each)
        else:
            found += [each] if isinstance(each, Exchange) else exchanges([each])
    return found


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


# -- services ------------------------------------------------------------------------------------------------------------


def sql(
    text: str,
    *parameters: str | int | None,
    tx: int = 0,
    rows: int | None = None,
    error: str = "",
    tag: str = "",
    outcome: str = "answered",
    peer: str = "127.0.0.1:6000",
    took_us: int = 0,
    at: int | None = None,
) -> Exchange:
    """A statement at PostgreSQL, in the transaction block ``tx``, or outside of any (0)."""
    number = next(_NUMBERS) if at is None else at
    words = text.upper().split()
    kind = (
        " ".join(words[:2])
        if words[-1].startswith("'") and words[1] in ("PREPARED", "TRANSACTION")
        else words[0]
    )
    is_control = kind in ("BEGIN", "COMMIT", "ROLLBACK") or "PREPARE" in kind
    tables = [] if is_control else sorted(set(re.findall(r"(?i)\b(?:into|from|update) (?!set)(\w+)", text)))
    is_write = kind not in ("SELECT", "BEGIN")
    said = re.search(r"(?i)on conflict.* do (nothing|update)", text)
    request = {
        "sql": text,
        "parameters": [None if each is None else str(each) for each in parameters],
        "kind": kind,
        "tables": tables,
        "returning": "returning" in text.lower(),
        "on_conflict": said[1].lower() if said else "",
        "transaction": tx or number,
        "phase": "transaction" if tx and not kind.endswith("PREPARED") else "autocommit",
        "is_write": is_write,
        "is_moment": kind != "BEGIN",
    }
    answer = {"tag": tag or kind, "rows": 1 if rows is None and not is_control else rows, "state": "I"}
    on = f"postgres:{' '.join([kind, *tables])}"
    return _call(on, peer, number, request, answer, error, outcome, text, took_us)


def post(
    body: str,
    *,
    key: str = "",
    status: int = 201,
    outcome: str = "answered",
    peer: str = "127.0.0.1:7000",
    path: str = "/v1/payments",
) -> Exchange:
    """A POST at the HTTP service."""
    request = {
        "method": "POST",
        "path": path,
        "idempotency_key": key,
        "body": body,
        "digest": str(hash(body)),
        "phase": "",
        "is_write": True,
    }
    error = "" if status < 400 else str(status)
    return _call(
        f"http:POST {path}", peer, next(_NUMBERS), request, {"status": status}, error, outcome, path, 0
    )


def _call(
    on: str,
    peer: str,
    number: int,
    request: dict[str, Any],
    answer: dict[str, Any],
    error: str,
    outcome: str,
    line: str,
    took_us: int,
) -> Exchange:
    is_over = outcome != "unanswered"
    return Exchange(
        api=on,
        version=0,
        client_id="",
        peer=peer,
        arrived_us=number,
        transactional_id=None,
        producer=None,
        group=None,
        topics=(),
        errors=(error,) if error else (),
        request=request,
        answer=answer if is_over else None,
        outcome=outcome,
        line=f"{peer} {line}",
        answered_us=number + took_us if is_over else 0,
    )


def insert(
    table: str, *values: str | int, tx: int = 0, how: str = "", rows: int = 1, **more: Any
) -> Exchange:
    """An INSERT of one row. ``how`` is the text behind its values, such as ON CONFLICT DO NOTHING."""
    places = ", ".join(f"${number}" for number, _ in enumerate(values, 1))
    return sql(f"INSERT INTO {table} VALUES ({places}) {how}".strip(), *values, tx=tx, rows=rows, **more)


def commit(tx: int, **more: Any) -> Exchange:
    return sql("COMMIT", tx=tx, **more)


def with_records(exchange: dict[str, Any], *texts: tuple[str | None, str]) -> dict[str, Any]:
    """A Produce or Fetch whose first batch has these keys and values."""
    side = exchange["request"].get("topic_data") or exchange["answer"]["responses"]
    partition = (side[0].get("partition_data") or side[0]["partitions"])[0]
    batch = partition["records"]["batches"][0]
    batch["records"] = [
        {"offset": batch.get("base_offset", 0) + at, "key": _coded(key), "value": _coded(value)}
        for at, (key, value) in enumerate(texts)
    ]
    return exchange


def _coded(text: str | None) -> str | None:
    return None if text is None else b64encode(text.encode()).decode()
