"""What the certifier reads from the broker while a run is under way: requests in the trace, and open transactions.

The functions take entries of ``GET /v1/trace`` (docs/trace.md) in the order of their arrival; `Observation` asks the
broker for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.certify.exchanges import exchanges
from odradek.certify.plans.faults import IN_TRANSACTION, WRITES
from odradek.certify.plans.plan import Injection
from odradek.handle import Handle
from odradek.remote import ENTRIES_MAX
from odradek.transactions import Transaction

Entry = Mapping[str, Any]
JOINS: Final = frozenset({"InitProducerId", "JoinGroup", "ConsumerGroupHeartbeat"})
"""How a producer or a member asks to come in."""
STEADY: Final = frozenset({"Fetch", "Heartbeat", "ConsumerGroupHeartbeat", "Metadata", "ApiVersions"})
"""What a client that has nothing to do sends all the same."""
_BEGUN: Final = ("Produce", "OffsetCommit", "TxnOffsetCommit")
_NEWEST: Final = 100
"""Requests among which the newest one of an API is looked for."""
_OUTCOMES: Final = {
    "hold": ("held", "in_progress"),
    "lose-answer": ("answer_lost", "held", "in_progress"),
    "lose-request": ("unanswered", "held", "in_progress"),
}
"""Action of a rule -> the outcomes in the trace that a request can have which the rule has hit, the likeliest first."""
_SESSION_MS: Final = 45_000
"""Kafka's default of session.timeout.ms and group.consumer.session.timeout.ms."""


# -- entries --------------------------------------------------------------------------------------------------------


def newest_number(entries: Iterable[Entry], apis: Collection[str]) -> int:
    """The number of the newest request of one of these APIs; 0 if there is none."""
    return max((int(each["number"]) for each in entries if each["api"] in apis), default=0)


def newest_of_work(entries: Iterable[Entry]) -> int:
    """The number of the newest request that a client without work does not send; 0 if there is none.

    A Fetch that returned records is work.
    """
    return max((int(each["number"]) for each in entries if _is_work(each)), default=0)


def _is_work(entry: Entry) -> bool:
    if entry["api"] == "Fetch":
        return "record" in str(entry.get("line", "")).partition(" -> ")[2]
    return entry["api"] not in STEADY


def unanswered(entries: Iterable[Entry]) -> set[int]:
    """The numbers of the requests that have no response so far."""
    return {int(each["number"]) for each in entries if each["outcome"] == "in_progress"}


def struck(entries: Sequence[Entry], action: str) -> Entry | None:
    """The newest request to which that has happened what a rule with this action does."""
    for outcome in _OUTCOMES.get(action.partition(" ")[0], ("in_progress",)):
        for each in reversed(entries):
            if each["outcome"] == outcome:
                return each
    return None


def are_offsets_pending(entries: Sequence[Entry]) -> bool:
    """The newest of these OffsetFetch requests was refused: offsets of an open transaction are pending (KIP-447)."""
    return bool(entries) and "UNSTABLE_OFFSET_COMMIT" in entries[-1]["line"]


def session_timeout_ms(joins: Iterable[Entry]) -> int:
    """The longest session time-out that these JoinGroup requests name; Kafka's default if none does."""
    named = ((each["request"] or {}).get("session_timeout_ms", 0) for each in joins)
    return max(named, default=_SESSION_MS)


def peers(entries: Iterable[Entry]) -> list[str]:
    """The connections of clients (host:port) that sent these requests, the newest first."""
    found = [str(each["peer"]) for each in entries if each.get("from_node") is None]
    return list(dict.fromkeys(reversed(found)))


def furthest_fetch(entries: Iterable[Entry], topic: str, partition: int) -> int:
    """The highest offset from which these Fetch requests ask for records of a partition; -1 if none does."""
    return max(
        (
            int(each["fetch_offset"])
            for entry in entries
            for one in (entry["request"] or {}).get("topics") or ()
            if topic in (one.get("topic"), one.get("topic_name"))
            for each in one["partitions"]
            if each["partition"] == partition
        ),
        default=-1,
    )


# -- the broker -----------------------------------------------------------------------------------------------------


class Observation:
    """The trace and the transactions of one broker."""

    def __init__(self, broker: Handle) -> None:
        self._broker = broker

    def newest_write(self, apis: Collection[str] = WRITES) -> int:
        """The number of the newest request with which the job asked for a change; 0 if there is none."""
        return newest_number(self._newest(), apis)

    def newest_in_transaction(self) -> int:
        """The number of the newest request that carries a transaction on; 0 if there is none."""
        return self.newest_write(IN_TRANSACTION)

    def newest_writes_and_work(self) -> tuple[int, int]:
        """As `newest_number` of what writes, and `newest_of_work`."""
        found = self._newest()
        return newest_number(found, WRITES), newest_of_work(found)

    def newest(self) -> int:
        """The number of the newest request of any API; 0 if there is none."""
        found = self._broker.trace.entries(limit=1, bodies=False)
        return int(found[-1]["number"]) if found else 0

    def _newest(self) -> list[dict[str, Any]]:
        return self._broker.trace.entries(limit=_NEWEST, bodies=False)

    def arrived(self, after: int, apis: Collection[str], *, bodies: bool = False) -> list[dict[str, Any]]:
        """The requests of these APIs with a higher number than ``after``."""
        found = self._broker.trace.entries(since=after, limit=ENTRIES_MAX, bodies=bodies)
        return [each for each in found if each["api"] in apis]

    def peers(self) -> list[str]:
        """The connections of the newest requests, the newest first."""
        return peers(self._newest())

    def has_begun(self) -> bool:
        """The job has read a record, or asked for a change that is not only a producer's start."""
        return any(self._broker.trace.entries(api=each, limit=1, bodies=False) for each in _BEGUN) or any(
            _is_work(each) for each in self._broker.trace.entries(api="Fetch", limit=_NEWEST, bodies=False)
        )

    def is_rebalancing(self) -> bool:
        """A member waits for the others."""
        return any(self.unanswered(each) for each in ("JoinGroup", "SyncGroup"))

    def unanswered(self, api: str) -> set[int]:
        return unanswered(self._broker.trace.entries(api=api, limit=_NEWEST, bodies=False))

    def struck(self, injection: Injection) -> Entry | None:
        """The request that the injection's rule has hit."""
        matchers = dict(injection.moment.matchers)
        names = ("transactional_id", "client_id")
        filters = {name: matchers[name] for name in names if name in matchers and "*" not in matchers[name]}
        entries = self._broker.trace.entries(api=injection.moment.on, limit=50, bodies=False, **filters)
        return struck(entries, injection.fault.action)

    def is_over(self, exchange: Entry) -> bool:
        """The request has its response, or never gets one."""
        number = int(exchange["number"])
        found = self._broker.trace.entries(since=number - 1, api=exchange["api"], limit=_NEWEST, bodies=False)
        now = [each["outcome"] for each in found if each["number"] == number]
        return bool(now) and now[-1] not in ("held", "in_progress")

    def are_offsets_pending(self) -> bool:
        """A consumer asks again and again for offsets of a transaction that is open."""
        return are_offsets_pending(self._broker.trace.entries(api="OffsetFetch", limit=1, bodies=False))

    def session_timeout_ms(self) -> int:
        return session_timeout_ms(self._broker.trace.entries(api="JoinGroup", limit=_NEWEST))

    def open_transactions(self) -> list[Transaction]:
        return [each for each in self._broker.transactions.list() if each.state == "Ongoing"]

    def produced_topics(self) -> Collection[str]:
        """The topics that the newest Produce request named."""
        newest = exchanges(self._broker.trace.entries(api="Produce", limit=20))
        return next((each.topics for each in reversed(newest) if each.topics), ())
