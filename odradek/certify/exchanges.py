"""The exchanges of a trace as typed objects: requests of the job's clients with their transactions and responses.

An exchange is one object of ``GET /v1/trace`` (docs/trace.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Entry = Mapping[str, Any]

_CONSUMER_SESSION_MS: Final = 45_000
"""Default of group.consumer.session.timeout.ms."""
_GROUP_FIELDS: Final = ("group_id", "group")
_OURS: Final = frozenset({"odradek", "odradek-proxy"})
"""Client ids of Odradek's own tools, which seed, create and read topics. Their requests are not the job's."""
ENDS: Final = frozenset({"EndTxn", "InitProducerId"})
"""APIs that end a transaction. InitProducerId aborts the transaction that the previous producer left open."""
_FIELDS: Final = frozenset(
    {
        *("api", "version", "client_id", "peer", "from_node", "arrived_us"),
        *("transactions", "request", "answer", "outcome"),
    }
)
"""Fields that each trace entry must have."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of the job's clients with its response: the fields that are used to place faults and to find lints."""

    api: str
    version: int
    client_id: str
    peer: str
    """host:port of the client, which identifies the connection."""
    arrived_us: int
    transactional_id: str | None
    producer: tuple[int, int] | None
    """Producer id and epoch; None if the request contains none."""
    group: str | None
    topics: tuple[str, ...]
    errors: tuple[str, ...]
    """All errors in the response, by Kafka's names."""
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None
    outcome: str
    line: str
    answered_us: int = 0
    """Time of the response in us since the epoch; 0 if there is none."""

    @property
    def service(self) -> str:
        """The service besides Kafka that got the request, such as ``postgres``; empty for Kafka."""
        return self.api.partition(":")[0] if ":" in self.api else ""

    @property
    def is_answered(self) -> bool:
        return self.outcome in ("answered", "unanswered")

    @property
    def succeeded(self) -> bool:
        return self.is_answered and not self.errors


def read(lines: Iterable[str]) -> list[Entry]:
    """Read a trace as ``odradek trace --json`` prints it: one JSON object per line.

    A line may also be a complete response of ``GET /v1/trace``. Raises ``ValueError`` with the number of a line that is
    neither.
    """
    return [entry for number, line in enumerate(lines, 1) if line.strip() for entry in _entries(number, line)]


def _entries(number: int, line: str) -> list[Entry]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from None
    if isinstance(found, dict) and "missed" in found:
        return []  # a line of `--follow` with the number of exchanges that it could not show in time
    entries = found.get("exchanges", [found]) if isinstance(found, dict) else [found]
    for each in entries:
        missing = _FIELDS - each.keys() if isinstance(each, dict) else _FIELDS
        if missing:
            raise ValueError(
                f"line {number}: not a trace exchange: the field {sorted(missing)[0]} is missing"
            )
    return list(entries)


def exchanges(entries: Iterable[Entry]) -> list[Exchange]:
    """The exchanges of clients by arrival, without requests between nodes and requests of Odradek's own tools."""
    return [
        _exchange(each) for each in entries if each["from_node"] is None and each["client_id"] not in _OURS
    ]


def _exchange(entry: Entry) -> Exchange:
    request, answer = entry["request"] or {}, entry["answer"]
    facts = entry["transactions"][0] if entry["transactions"] else {}
    producer = (facts.get("producer_id", -1), facts.get("producer_epoch", -1))
    return Exchange(
        api=entry["api"],
        version=entry["version"],
        client_id=entry["client_id"] or "",
        peer=entry["peer"],
        arrived_us=entry["arrived_us"],
        transactional_id=facts.get("transactional_id"),
        producer=producer if producer[0] >= 0 else None,
        group=_group(entry["api"], request),
        topics=tuple(dict.fromkeys(_topics(request))),
        errors=tuple(name for name in _errors(answer) if name != "NONE"),
        request=request,
        answer=answer,
        outcome=entry["outcome"],
        line=entry.get("line", ""),
        answered_us=entry["arrived_us"] + took_us if (took_us := entry.get("took_us")) else 0,
    )


def _group(api: str, request: Mapping[str, Any]) -> str | None:
    if api == "FindCoordinator":
        keys = request.get("coordinator_keys") or [request.get("key")]
        return str(keys[0]) if request.get("key_type") == 0 and keys[0] else None
    for name in _GROUP_FIELDS:
        if request.get(name):
            return str(request[name])
    groups = request.get("groups")
    return str(groups[0]["group_id"]) if groups and api == "OffsetFetch" else None


def _topics(request: Mapping[str, Any]) -> Iterator[str]:
    for field in ("topic_data", "topics", "v3_and_below_topics"):
        for each in request.get(field) or ():
            if isinstance(each, Mapping):
                name = each.get("name") or each.get("topic") or each.get("topic_name")
                if name:
                    yield str(name)


def _errors(answer: object) -> Iterator[str]:
    """The error names in a response: the fields "error" and "*_error", next to the error codes (docs/trace.md)."""
    if isinstance(answer, Mapping):
        for name, each in answer.items():
            if isinstance(each, str) and (name == "error" or name.endswith("_error")):
                yield each
            else:
                yield from _errors(each)
    elif isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
        for each in answer:
            yield from _errors(each)


def time_outs_s(found: Iterable[Exchange]) -> float:
    """How long a dead instance may block the others, in seconds: the longest session plus transaction timeout.

    ConsumerGroupHeartbeat (KIP-848) and ShareGroupHeartbeat contain no session timeout, so Kafka's default is used for them.
    It is longer than the default duration of a record lock.
    """
    session_ms = transaction_ms = 0
    for each in found:
        if each.api == "JoinGroup":
            session_ms = max(session_ms, each.request.get("session_timeout_ms", 0))
        elif each.api in ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat"):
            session_ms = max(session_ms, _CONSUMER_SESSION_MS)
        elif each.api == "InitProducerId" and each.transactional_id:
            transaction_ms = max(transaction_ms, each.request.get("transaction_timeout_ms", 0))
    return (session_ms + transaction_ms) / 1000


def batches(exchange: Exchange) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield (topic, partition, batch) for each batch of a Produce request."""
    for topic in exchange.request.get("topic_data") or ():
        for partition in topic["partition_data"]:
            for batch in (partition.get("records") or {}).get("batches") or ():
                yield topic.get("name") or topic.get("topic_name"), partition["index"], batch
