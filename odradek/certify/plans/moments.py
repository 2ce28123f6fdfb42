"""The moments of a run at which a fault can be injected, and their classes.

A moment is a request of the job's clients, identified by what a fault rule can match: the API, the transactional id, group
or topic, and its ordinal among these requests. A fault can act before the request (after the previous response) or on its
response. Requests of one API in the same phase of a transaction are equivalent and form a class. A step inside the broker
(``txn.marker``, docs/faults.md) is a moment too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify import share_groups
from odradek.certify.exchanges import Exchange, batches
from odradek.certify.plans.at_services import service_of

# APIs that are called repeatedly and change nothing durable.
READS: Final = frozenset({"Fetch", "Metadata", "ApiVersions", "ListOffsets", "Heartbeat", "FindCoordinator"})
STEPS_OF_COMMIT: Final = ("txn.prepare.append", "txn.marker", "txn.complete.append")
STEPS_OF_OFFSETS: Final = ("group.append",)
_WORD: Final = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]+")
_LEFT_OUT: Final = frozenset(
    {"SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"}
)


@dataclass(frozen=True, slots=True, order=True)
class MomentClass:
    """A class of equivalent moments: the same API or step, in the same phase."""

    on: str
    """An API or a step, in the syntax of fault rules, or a request of a service: ``postgres:COMMIT``."""
    phase: str

    def __str__(self) -> str:
        return f"{self.on} ({self.phase})" if self.phase else self.on


@dataclass(frozen=True, slots=True)
class Moment:
    """A request of the job or a step of the broker: the ``ordinal``-th, from 1, that matches ``on`` and ``matchers``."""

    on: str
    matchers: tuple[tuple[str, str], ...]
    """Matchers of the fault rule, such as ``("transactional_id", "payments")``."""
    ordinal: int
    phase: str

    @property
    def kind(self) -> MomentClass:
        return MomentClass(self.on, self.phase)

    @property
    def service(self) -> str:
        """The service besides Kafka that gets the request; empty for Kafka."""
        return service_of(self.on)

    @property
    def is_step(self) -> bool:
        return "." in self.on and not self.service

    def __str__(self) -> str:
        where = " ".join(f"{name}={value}" for name, value in self.matchers)
        return " ".join(filter(None, [self.on, where, f"#{self.ordinal}", self.phase and f"({self.phase})"]))


def moments(run: Sequence[Exchange], wildcards: Mapping[str, str] | None = None) -> list[Moment]:
    """The moments of a run without faults, in the order of arrival.

    ``wildcards`` maps names that differ from run to run to patterns (`patterns`).
    """
    counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
    phases = _Phases()
    found: list[Moment] = []
    steps: list[Moment] = []
    for exchange in run:
        if exchange.service:
            if exchange.request.get("is_moment", True):
                counts[exchange.api, ()] += 1
                phase = str(exchange.request["phase"])
                found.append(Moment(exchange.api, (), counts[exchange.api, ()], phase))
            continue
        phase = phases.of(exchange)
        if exchange.api in _LEFT_OUT:
            continue
        matchers = _matchers(exchange, wildcards or {})
        counts[exchange.api, matchers] += 1
        found.append(Moment(exchange.api, matchers, counts[exchange.api, matchers], phase))
        steps += _steps(exchange, matchers, phase, counts)
    return found + steps


def _matchers(exchange: Exchange, wildcards: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if exchange.transactional_id:
        whose = ("transactional_id", exchange.transactional_id)
    elif exchange.group:
        whose = ("group", exchange.group)
    elif len(exchange.topics) == 1:
        whose = ("topic", exchange.topics[0])
    elif exchange.client_id:
        whose = ("client_id", exchange.client_id)
    else:
        return ()
    return ((whose[0], wildcards.get(whose[1], whose[1])),)


def _steps(
    exchange: Exchange,
    matchers: tuple[tuple[str, str], ...],
    phase: str,
    counts: Counter[tuple[str, tuple[tuple[str, str], ...]]],
) -> Iterator[Moment]:
    """Yield the steps that the broker performs for a request."""
    if not exchange.succeeded:
        return
    names: tuple[str, ...]
    if exchange.api == "EndTxn":
        names = STEPS_OF_COMMIT
    elif exchange.api in ("TxnOffsetCommit", "OffsetCommit") and exchange.group:
        names, matchers = STEPS_OF_OFFSETS, (("group", exchange.group),)
    else:
        return
    for name in names:
        counts[name, matchers] += 1
        yield Moment(name, matchers, counts[name, matchers], phase)


class _Phases:
    """The phase of each transactional id's transaction, such as "opens" or "commit", at each request of a trace."""

    def __init__(self) -> None:
        self._initialised: set[str] = set()
        self._sent: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, exchange: Exchange) -> str:
        transactional_id = exchange.transactional_id
        if transactional_id is None:
            return self._without(exchange)
        if exchange.api == "FindCoordinator":
            return "transaction"
        if exchange.api == "InitProducerId":
            again = transactional_id in self._initialised
            self._initialised.add(transactional_id)
            self._sent.pop(transactional_id, None)
            return "again" if again else "first"
        if exchange.api == "EndTxn":
            self._sent.pop(transactional_id, None)
            return "commit" if exchange.request.get("committed") else "abort"
        sent = self._sent[transactional_id]
        phase = "opens" if not sent else "again" if exchange.api in sent else "adds"
        sent.add(exchange.api)
        return phase

    @staticmethod
    def _without(exchange: Exchange) -> str:
        if exchange.api == "Produce":
            found = next((batch for _, _, batch in batches(exchange)), None)
            idempotent = found is not None and found.get("producer_id", -1) >= 0
            return "idempotent" if idempotent else "plain"
        if exchange.api == "Fetch":
            return "records" if _returned_records(exchange) else "nothing"
        if exchange.api == share_groups.FETCH:
            return _share_fetch(exchange)
        if exchange.api == "FindCoordinator":
            return "group"
        if exchange.api == "JoinGroup":
            return "rejoins" if exchange.request.get("member_id") else "joins"
        return ""


def _share_fetch(exchange: Exchange) -> str:
    if share_groups.acknowledges(exchange):
        return "acknowledges"
    return "records" if share_groups.delivers(exchange) else "nothing"


def _returned_records(exchange: Exchange) -> bool:
    for topic in (exchange.answer or {}).get("responses") or ():
        for partition in topic.get("partitions") or ():
            if (partition.get("records") or {}).get("batches"):
                return True
    return False


def patterns(one: Iterable[Exchange], two: Iterable[Exchange]) -> dict[str, str]:
    """Patterns for ids that differ between two runs of the job: ``app-1f2e-0`` and ``app-77ab-0`` become ``app-*-0``."""
    found: dict[str, str] = {}
    for field in ("transactional_id", "group", "client_id"):
        ours, theirs = _ids(one, field), _ids(two, field)
        for name, other in zip(sorted(ours - theirs), sorted(theirs - ours), strict=False):
            pattern = _pattern(name, other)
            found[name] = found[other] = pattern
    return found


def roles(run: Iterable[Exchange]) -> dict[str, str]:
    """Patterns for transactional ids of one run that differ only in a number: ``copier-1`` and ``copier-2`` become
    ``copier-*``.

    In each run another instance, and so another id, may get a partition. A pattern matches in every run.
    """
    shapes: defaultdict[str, set[str]] = defaultdict(set)
    for name in _ids(run, "transactional_id"):
        shapes["".join("*" if each.isdigit() else each for each in _WORD.findall(name))].add(name)
    return {
        name: shape
        for shape, names in shapes.items()
        if len(names) > 1 and any(each.isalnum() for each in shape)
        for name in names
    }


def _ids(run: Iterable[Exchange], field: str) -> set[str]:
    return {value for each in run if (value := getattr(each, field))}


def _pattern(one: str, two: str) -> str:
    """The common prefix and suffix of two ids, with ``*`` between them.

    Only whole words count as common, because random parts of two ids may begin with the same letters by chance.
    """
    first, second = _WORD.findall(one), _WORD.findall(two)
    begin = _common(first, second)
    end = _common(first[begin:][::-1], second[begin:][::-1])
    return "".join([*first[:begin], "*", *first[len(first) - end :]])


def _common(one: Sequence[str], two: Sequence[str]) -> int:
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(one), len(two)))


def classes(found: Iterable[Moment]) -> dict[MomentClass, list[Moment]]:
    """The moments of each class, in the order of ``found``."""
    members: defaultdict[MomentClass, list[Moment]] = defaultdict(list)
    for moment in found:
        members[moment.kind].append(moment)
    return dict(members)
