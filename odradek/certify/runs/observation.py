"""Queries of the broker during a run: requests in the trace, and open transactions.

The functions take entries of ``GET /v1/trace`` (docs/trace.md) in the order of arrival; `Observation` fetches them
from the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.certify.exchanges import exchanges
from odradek.certify.plans.faults import IN_TRANSACTION, WRITES
from odradek.certify.plans.plan import Injection
from odradek.certify.share_groups import lock_ms
from odradek.handle import Handle
from odradek.remote import ENTRIES_MAX
from odradek.transactions import Transaction

Entry = Mapping[str, Any]
JOINS: Final = frozenset({"InitProducerId", "JoinGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"})
"""APIs with which a producer or a group member starts."""
STEADY: Final = frozenset(
    {
        *("Fetch", "Heartbeat", "ConsumerGroupHeartbeat", "Metadata", "ApiVersions"),
        "ShareFetch",
        "ShareGroupHeartbeat",
    }
)
"""APIs that a client also sends when it has nothing to do."""
_FETCHES: Final = ("Fetch", "ShareFetch")
_BEGUN: Final = ("Produce", "OffsetCommit", "TxnOffsetCommit", "ShareAcknowledge")
_NEWEST: Final = 100
"""How many of the latest requests are searched for an API."""
_OUTCOMES: Final = {
    "hold": ("held", "in_progress"),
    "lose-answer": ("answer_lost", "held", "in_progress"),
    "lose-request": ("unanswered", "held", "in_progress"),
}
"""For each action of a rule, the possible trace outcomes of a request that it hit, the likeliest first."""
_SESSION_MS: Final = 45_000
"""Kafka's default of session.timeout.ms and group.consumer.session.timeout.ms."""


# -- entries --------------------------------------------------------------------------------------------------------


def newest_number(entries: Iterable[Entry], apis: Collection[str]) -> int:
    """Trace number of the latest request of one of these APIs; 0 if there is none."""
    return max((int(each["number"]) for each in entries if each["api"] in apis), default=0)


def newest_of_work(entries: Iterable[Entry]) -> int:
    """Trace number of the latest request that an idle client would not send; 0 if there is none.

    A Fetch or ShareFetch that returned records counts as work.
    """
    return max((int(each["number"]) for each in entries if _is_work(each)), default=0)


def _is_work(entry: Entry) -> bool:
    return returns_records(entry) if entry["api"] in _FETCHES else entry["api"] not in STEADY


def returns_records(entry: Entry) -> bool:
    """Whether the response to a Fetch or ShareFetch has records, as far as the trace's line shows it."""
    answer = str(entry.get("line", "")).partition(" -> ")[2]
    return ("acquired" if entry["api"] == "ShareFetch" else "record") in answer


def last_closed(entries: Sequence[Entry], before: int) -> int:
    """Trace number up to which no request waits for its response any more; ``before`` if there are no entries."""
    waits = [int(each["number"]) - 1 for each in entries if each["outcome"] in ("in_progress", "held")]
    return min(waits, default=int(entries[-1]["number"]) if entries else before)


def newest_delivery(entries: Iterable[Entry]) -> int:
    """Trace number of the latest ShareFetch that delivered records, and so locked them; 0 if there is none."""
    return newest_number((each for each in entries if returns_records(each)), ("ShareFetch",))


def unanswered(entries: Iterable[Entry]) -> set[int]:
    """Trace numbers of the requests without a response so far."""
    return {int(each["number"]) for each in entries if each["outcome"] == "in_progress"}


def struck(entries: Sequence[Entry], action: str) -> Entry | None:
    """Return the latest request with an outcome that a rule with this action leaves in the trace; None if there is none."""
    for outcome in _OUTCOMES.get(action.partition(" ")[0], ("in_progress",)):
        for each in reversed(entries):
            if each["outcome"] == outcome:
                return each
    return None


def are_offsets_pending(entries: Sequence[Entry]) -> bool:
    """Whether the latest of these OffsetFetch requests was rejected because a transaction has pending offsets (KIP-447)."""
    return bool(entries) and "UNSTABLE_OFFSET_COMMIT" in entries[-1]["line"]


def session_timeout_ms(joins: Iterable[Entry]) -> int:
    """The longest session timeout in these JoinGroup requests; Kafka's default if there is none."""
    named = ((each["request"] or {}).get("session_timeout_ms", 0) for each in joins)
    return max(named, default=_SESSION_MS)


def peers(entries: Iterable[Entry]) -> list[str]:
    """The connections (host:port) of clients that sent these requests, the latest first."""
    found = [str(each["peer"]) for each in entries if each.get("from_node") is None]
    return list(dict.fromkeys(reversed(found)))


def furthest_fetch(entries: Iterable[Entry], topic: str, partition: int) -> int:
    """The highest fetch offset of a partition in the Fetch requests among these; -1 if there is none."""
    return max(
        (
            int(each["fetch_offset"])
            for entry in entries
            if entry["api"] == "Fetch"
            for one in (entry["request"] or {}).get("topics") or ()
            if topic in (one.get("topic"), one.get("topic_name"))
            for each in one["partitions"]
            if each["partition"] == partition
        ),
        default=-1,
    )


def furthest_delivery(entries: Iterable[Entry], topic: str, partition: int) -> int:
    """The highest offset of a partition in the responses to the ShareFetch requests among these; -1 if there is none."""
    return max(
        (
            int(batch["last_offset"])
            for entry in entries
            if entry["api"] == "ShareFetch"
            for one in (entry["answer"] or {}).get("responses") or ()
            if topic == one.get("topic_name")
            for each in one["partitions"]
            if each["partition_index"] == partition
            for batch in (each["records"] or {}).get("batches") or ()
            if "last_offset" in batch
        ),
        default=-1,
    )


# -- the broker -----------------------------------------------------------------------------------------------------


class Observation:
    """Queries of one broker's trace and transactions."""

    def __init__(self, broker: Handle) -> None:
        self._broker = broker
        self._fetches_seen = self._delivered = 0
        """Trace numbers: of the last ShareFetch that `newest_delivery` need not read again, and of the last delivery."""

    def newest_write(self, apis: Collection[str] = WRITES) -> int:
        """Trace number of the latest request of the job that changes something; 0 if there is none."""
        return newest_number(self._newest(), apis)

    def newest_in_transaction(self) -> int:
        """Trace number of the latest request within a transaction; 0 if there is none."""
        return self.newest_write(IN_TRANSACTION)

    def newest_writes_and_work(self) -> tuple[int, int]:
        """Trace numbers of the latest request that changes something, and of the latest that no idle client sends."""
        found = self._newest()
        return max(newest_number(found, WRITES), newest_delivery(found)), newest_of_work(found)

    def newest(self) -> int:
        """Trace number of the latest request of any API; 0 if there is none."""
        found = self._broker.trace.entries(limit=1, bodies=False)
        return int(found[-1]["number"]) if found else 0

    def _newest(self) -> list[dict[str, Any]]:
        return self._broker.trace.entries(limit=_NEWEST, bodies=False)

    def arrived(self, after: int, apis: Collection[str], *, bodies: bool = False) -> list[dict[str, Any]]:
        """The requests of these APIs with a trace number above ``after``."""
        found = self._broker.trace.entries(since=after, limit=ENTRIES_MAX, bodies=bodies)
        return [each for each in found if each["api"] in apis]

    def peers(self) -> list[str]:
        """The connections of the latest requests, the latest first."""
        return peers(self._newest())

    def has_begun(self) -> bool:
        """Whether the job has read a record, or sent a request that changes something, except InitProducerId."""
        return any(self._broker.trace.entries(api=each, limit=1, bodies=False) for each in _BEGUN) or any(
            _is_work(each)
            for api in _FETCHES
            for each in self._broker.trace.entries(api=api, limit=_NEWEST, bodies=False)
        )

    def is_rebalancing(self) -> bool:
        """Whether a member waits for others in a rebalance."""
        return any(self.unanswered(each) for each in ("JoinGroup", "SyncGroup"))

    def unanswered(self, api: str) -> set[int]:
        return unanswered(self._broker.trace.entries(api=api, limit=_NEWEST, bodies=False))

    def struck(self, injection: Injection) -> Entry | None:
        """The request that the injection's rule has hit; None if it cannot be found."""
        matchers = dict(injection.moment.matchers)
        names = ("transactional_id", "client_id")
        filters = {name: matchers[name] for name in names if name in matchers and "*" not in matchers[name]}
        entries = self._broker.trace.entries(api=injection.moment.on, limit=50, bodies=False, **filters)
        return struck(entries, injection.fault.action)

    def is_over(self, exchange: Entry) -> bool:
        """Whether the request has got its response, or will never get one."""
        number = int(exchange["number"])
        found = self._broker.trace.entries(since=number - 1, api=exchange["api"], limit=_NEWEST, bodies=False)
        now = [each["outcome"] for each in found if each["number"] == number]
        return bool(now) and now[-1] not in ("held", "in_progress")

    def are_offsets_pending(self) -> bool:
        """Whether a consumer keeps retrying OffsetFetch because of pending offsets of an open transaction."""
        return are_offsets_pending(self._broker.trace.entries(api="OffsetFetch", limit=1, bodies=False))

    def session_timeout_ms(self) -> int:
        return session_timeout_ms(self._broker.trace.entries(api="JoinGroup", limit=_NEWEST))

    def newest_delivery(self) -> int:
        """Trace number of the latest ShareFetch that delivered records; 0 if there is none.

        Each call reads what is new: members that have nothing to do send many ShareFetches.
        """
        found = self._broker.trace.entries(
            since=self._fetches_seen, api="ShareFetch", limit=ENTRIES_MAX, bodies=False
        )
        self._fetches_seen = last_closed(found, self._fetches_seen)
        self._delivered = max(self._delivered, newest_delivery(found))
        return self._delivered

    def lock_ms(self) -> int:
        """The duration of the share groups' record locks, according to the latest responses to ShareFetch."""
        found = self._broker.trace.entries(api="ShareFetch", limit=_NEWEST)
        return lock_ms(each["answer"] or {} for each in found)

    def open_transactions(self) -> list[Transaction]:
        return [each for each in self._broker.transactions.list() if each.state == "Ongoing"]

    def produced_topics(self) -> Collection[str]:
        """The topics of the latest Produce request."""
        newest = exchanges(self._broker.trace.entries(api="Produce", limit=20))
        return next((each.topics for each in reversed(newest) if each.topics), ())
