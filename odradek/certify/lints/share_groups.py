"""Lints on share groups: records that are acknowledged too early, too late, or never."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.certify import share_groups
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.progress import Wrote
from odradek.certify.share_groups import ACCEPT, LOST_LOCK, RELEASE, RENEW, Acknowledgement, Delivery

Record = tuple[share_groups.Key, int]
"""Topic and partition, and the offset."""
_RELEASES_MIN: Final = 2
"""Number of releases after which a record that was never accepted counts as released up to the limit."""


def acknowledged_early(evidence: Evidence, expected: int) -> Iterator[Lint]:
    """Yield acknowledgements that accept more records than the broker has outputs for.

    ``expected`` is the number of outputs without faults. The lint applies only to a job that writes the same number of
    records per input record, as otherwise it is unknown which outputs belong to an input record.
    """
    delivered = {(each.key, each.offset) for each in share_groups.deliveries(evidence.exchanges)}
    rate = expected / (len(delivered) or 1)
    if rate < 1 or rate != round(rate):
        return
    wrote = Wrote(evidence)
    accepted: set[Record] = set()
    reported = -1
    for each in share_groups.acknowledgements(evidence.exchanges):
        if each.type != ACCEPT or not each.was_taken or (each.key, each.offset) not in delivered:
            continue
        accepted.add((each.key, each.offset))
        there = wrote.until(each.number)
        if there < rate * len(accepted) and each.number != reported:
            reported = each.number
            yield _early(each, len(accepted), there, round(rate * len(accepted)))


def _early(found: Acknowledgement, accepted: int, there: int, wanted: int) -> Lint:
    said = f"accepts the {_ordinal(accepted)} record when {there} of {wanted} outputs are written"
    if found.exchange.api == share_groups.FETCH:
        return seen_at(
            found.exchange,
            "acknowledged-by-poll",
            f"ShareFetch {said}: with share.acknowledgement.mode=implicit each poll accepts all records of the last one, "
            "processed or not, and they are not delivered again. Poll when their outputs are acknowledged, or set "
            "share.acknowledgement.mode=explicit and acknowledge then",
        )
    return seen_at(
        found.exchange,
        "acknowledged-early",
        f"ShareAcknowledge {said}: accepted records are not delivered again. Acknowledge after the outputs are "
        "acknowledged",
    )


def _ordinal(number: int) -> str:
    """The number as an ordinal.

    >>> [_ordinal(each) for each in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ends = {1: "st", 2: "nd", 3: "rd"} if number % 100 not in (11, 12, 13) else {}
    return f"{number}{ends.get(number % 10, 'th')}"


def never_renews(evidence: Evidence) -> Iterator[Lint]:
    """Yield acknowledgements that were refused as the records were not locked any more, and whose member renewed no lock."""
    held: dict[tuple[str, Record], Delivery] = {
        (each.member, (each.key, each.offset)): each
        for each in share_groups.deliveries(evidence.exchanges)
        if each.is_received
    }
    renewed: set[tuple[str, Record]] = set()
    reported: set[int] = set()
    for each in share_groups.acknowledgements(evidence.exchanges):
        owner = each.member, (each.key, each.offset)
        if each.type == RENEW and each.was_taken:
            renewed.add(owner)
        is_late = each.error == LOST_LOCK and owner in held and owner not in renewed
        if is_late and each.number not in reported:
            reported.add(each.number)
            lock_s = share_groups.lock_ms([held[owner].exchange.answer or {}]) / 1000
            topic, partition = each.key
            yield seen_at(
                each.exchange,
                "never-renews",
                f"the acknowledgement of {topic}-{partition}@{each.offset} was refused with {LOST_LOCK}: the lock of "
                f"{lock_s:g} s had run out, without a renewal, and other members get the record too. Process fewer "
                "records per poll (max.poll.records), raise share.record.lock.duration.ms, or renew (AcknowledgeType.RENEW, "
                "KIP-1222)",
            )


def redelivered(evidence: Evidence) -> Iterator[Lint]:
    """Yield deliveries of records that a member had received before, and whether that member has died."""
    last: dict[Record, Delivery] = {}
    acknowledged = {
        (each.member, (each.key, each.offset))
        for each in share_groups.acknowledgements(evidence.exchanges)
        if each.error
    }
    newest = {each.request.get("member_id"): number for number, each in enumerate(evidence.exchanges)}
    for each in share_groups.deliveries(evidence.exchanges):
        record = each.key, each.offset
        before = last.get(record)
        if each.is_received:
            last[record] = each
        if before is None:
            continue
        is_open = (before.member, record) not in acknowledged
        is_dead = is_open and before.member != each.member and newest[before.member] < each.number
        topic, partition = each.key
        name = "died-with-locks" if is_dead else "redelivered"
        why = ": the member that had it ended without an acknowledgement" if is_dead else ""
        yield seen_at(
            each.exchange,
            name,
            f"{topic}-{partition}@{each.offset} is delivered again (delivery count {each.delivery_count}){why}. The "
            "acknowledgements of share groups are in no transaction, so outputs written before are written again. Write "
            "outputs that may be repeated, for instance with the input's partition and offset as key",
        )


def released_to_limit(evidence: Evidence) -> Iterator[Lint]:
    """Yield the last release of a record that the job released at each delivery until it was not delivered any more."""
    released: defaultdict[Record, list[Acknowledgement]] = defaultdict(list)
    ended: set[Record] = set()
    for each in share_groups.acknowledgements(evidence.exchanges):
        if each.was_taken and each.type == RELEASE:
            released[each.key, each.offset].append(each)
        elif each.was_taken and each.type != RENEW:
            ended.add((each.key, each.offset))
    delivered: Counter[Record] = Counter()
    newest: dict[Record, int] = {}
    for delivery in share_groups.deliveries(evidence.exchanges):
        delivered[delivery.key, delivery.offset] = delivery.delivery_count
        newest[delivery.key, delivery.offset] = delivery.number
    for record, found in released.items():
        is_over = newest.get(record, -1) < found[-1].number
        if len(found) >= _RELEASES_MIN and is_over and record not in ended:
            (topic, partition), offset = record
            yield seen_at(
                found[-1].exchange,
                "released-to-limit",
                f"{topic}-{partition}@{offset} was released {len(found)} times, the last time at delivery "
                f"{delivered[record]}, and was not delivered again: at share.delivery.count.limit the group gives it up. "
                "Reject a record that cannot be processed, or write it elsewhere and accept it, and set "
                "errors.deadletterqueue.topic.name for the others",
            )


def share_read_uncommitted(evidence: Evidence) -> Iterator[Lint]:
    """Yield deliveries of records whose abort marker is in the same response."""
    for exchange in evidence.exchanges:
        for topic in (
            (exchange.answer or {}).get("responses") or () if exchange.api == share_groups.FETCH else ()
        ):
            for partition in topic.get("partitions") or ():
                if _acquires_aborted(partition):
                    yield seen_at(
                        exchange,
                        "read-uncommitted",
                        f"the share group gets records of aborted transactions from {topic.get('topic_name')}. Set "
                        "share.isolation.level=read_committed for the group; the default is read_uncommitted",
                    )


def _acquires_aborted(partition: Mapping[str, Any]) -> bool:
    acquired = [
        (each["first_offset"], each["last_offset"]) for each in partition.get("acquired_records") or ()
    ]
    of_producer: dict[int, list[int]] = {}
    for batch in (partition.get("records") or {}).get("batches") or ():
        if not batch.get("control"):
            of_producer.setdefault(batch.get("producer_id", -1), []).append(batch.get("base_offset", -1))
            continue
        ended = of_producer.pop(batch.get("producer_id", -1), [])
        if batch.get("marker") == "ABORT" and any(
            first <= base <= last for base in ended for first, last in acquired
        ):
            return True
    return False
