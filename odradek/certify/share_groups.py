"""What share groups did in a trace (KIP-932): deliveries of records, and their acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from odradek.certify.exchanges import Exchange

FETCH: Final = "ShareFetch"
ACKNOWLEDGE: Final = "ShareAcknowledge"
HEARTBEAT: Final = "ShareGroupHeartbeat"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
"""Acknowledge types. 0 is a gap: an offset without a record for the application."""
LOST_LOCK: Final = "INVALID_RECORD_STATE"
"""Error for the acknowledgement of a record that the member does not hold, for instance because its lock has run out."""
LOCK_MS: Final = 30_000
"""Kafka's default of group.share.record.lock.duration.ms."""

Key = tuple[str, int]
"""Topic and partition."""


class Delivery(NamedTuple):
    """One delivery of one record to a member of a share group."""

    number: int
    """Index of the ShareFetch in the trace."""
    exchange: Exchange
    key: Key
    offset: int
    delivery_count: int
    """1 for the first delivery."""

    @property
    def member(self) -> str:
        return str(self.exchange.request.get("member_id"))

    @property
    def is_received(self) -> bool:
        """Whether the response was sent to the member. Otherwise the application never got the record."""
        return self.exchange.outcome == "answered"


class Acknowledgement(NamedTuple):
    """One acknowledgement of one offset by a member of a share group."""

    number: int
    """Index of the ShareFetch or ShareAcknowledge in the trace."""
    exchange: Exchange
    key: Key
    offset: int
    type: int
    error: str
    """Kafka's name of the error, ``NONE`` if there was none, "" if the broker has not handled the acknowledgement."""

    @property
    def member(self) -> str:
        return str(self.exchange.request.get("member_id"))

    @property
    def was_taken(self) -> bool:
        return self.error == "NONE"


def deliveries(run: Iterable[Exchange]) -> Iterator[Delivery]:
    """The deliveries of records, in the order of the requests. Control records are left out."""
    for number, exchange in enumerate(run):
        if exchange.api != FETCH:
            continue
        for key, partition in _partitions((exchange.answer or {}).get("responses")):
            data = [
                (each["base_offset"], each["last_offset"])
                for each in (partition.get("records") or {}).get("batches") or ()
                if "base_offset" in each and not each.get("control")
            ]
            for acquired in partition.get("acquired_records") or ():
                for offset in range(acquired["first_offset"], acquired["last_offset"] + 1):
                    if any(first <= offset <= last for first, last in data):
                        yield Delivery(number, exchange, key, offset, acquired["delivery_count"])


def acknowledgements(run: Iterable[Exchange]) -> Iterator[Acknowledgement]:
    """The acknowledgements of offsets, in the order of the requests."""
    for number, exchange in enumerate(run):
        if exchange.api not in (FETCH, ACKNOWLEDGE):
            continue
        errors = _errors(exchange)
        for key, partition in _partitions(exchange.request.get("topics")):
            for batch in partition.get("acknowledgement_batches") or ():
                types = batch["acknowledge_types"]
                for at, offset in enumerate(range(batch["first_offset"], batch["last_offset"] + 1)):
                    kind = types[at] if len(types) > 1 else types[0]
                    yield Acknowledgement(number, exchange, key, offset, kind, errors.get(key, ""))


def acknowledges(exchange: Exchange) -> bool:
    """Whether the request acknowledges records."""
    partitions = _partitions(exchange.request.get("topics")) if exchange.api in (FETCH, ACKNOWLEDGE) else ()
    return any(partition.get("acknowledgement_batches") for _, partition in partitions)


def delivers(exchange: Exchange) -> bool:
    """Whether the response delivers records."""
    found = _partitions((exchange.answer or {}).get("responses")) if exchange.api == FETCH else ()
    return any(partition.get("acquired_records") for _, partition in found)


def consumes(run: Iterable[Exchange], topics: frozenset[str]) -> bool:
    """Whether a share group consumes one of the topics."""
    return any(each.api == FETCH and bool(topics & set(each.topics)) for each in run)


def lock_ms(answers: Iterable[Mapping[str, Any]]) -> int:
    """The longest lock duration in these responses to ShareFetch; Kafka's default if there is none."""
    return max((each.get("acquisition_lock_timeout_ms") or 0 for each in answers), default=0) or LOCK_MS


def _errors(exchange: Exchange) -> dict[Key, str]:
    """The result of the acknowledgements by partition; empty if the broker has not handled the request."""
    if exchange.outcome not in ("answered", "answer_lost"):
        return {}
    answer = exchange.answer or {}
    name = "acknowledge_error" if exchange.api == FETCH else "error"
    of_all = answer.get("error", "NONE")
    if of_all != "NONE":
        return {key: of_all for key, _ in _partitions(exchange.request.get("topics"))}
    return {key: partition.get(name, "NONE") for key, partition in _partitions(answer.get("responses"))}


def _partitions(topics: Iterable[Mapping[str, Any]] | None) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    for topic in topics or ():
        name = topic.get("topic_name") or topic.get("topic_id") or ""
        for partition in topic.get("partitions") or ():
            yield (str(name), partition["partition_index"]), partition
