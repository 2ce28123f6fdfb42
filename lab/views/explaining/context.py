"""Collects the context of explanations: states of nodes, rules with the requests and steps that they hold, refused
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from broker.clock import Clock, Domain
from broker.cluster import Cluster
from lab.explain.facts import ClusterContext, FaultRule, HeldByRule, Refusal, Throttle
from lab.faults import ActiveRule, Faults
from lab.faults.active_rule import HeldItem
from lab.faults.text import rule_to_text
from lab.trace.decoding import answer_dict, request_dict
from lab.trace.exchange import Exchange, Names
from lab.trace.lines import errors_in, text_line
from lab.trace.trace import Trace
from lab.views.turns import in_turns
from protocol.error_codes import error_name

REFUSED_MAX: Final = 1000
"""Number of the newest exchanges with errors or throttle times that are examined."""
PER_TURN: Final = 30
"""Number of exchanges examined in one turn of the event loop: decoding each takes time."""
FOLDED_MAX: Final = 100
HELD_MAX: Final = 1024
PLACES_MAX: Final = 100
"""Largest number of partitions listed for one refusal."""
PRODUCE: Final = 0
FETCH: Final = 1
INIT_PRODUCER_ID: Final = 22
WRITE_TXN_MARKERS: Final = 27
GROUP_KEY: Final = 0
"""Key type of FindCoordinator for a group's coordinator."""
NO_REFUSALS: Final = frozenset({"MEMBER_ID_REQUIRED"})
"""Errors that every client gets in normal operation."""

T = TypeVar("T", bound=Any)
Refused = tuple[tuple[Refusal, ...], tuple[Throttle, ...]]


def context(cluster: Cluster, faults: Faults, trace: Trace, refused: Refused) -> ClusterContext:
    """The present context of an explanation. ``refused`` is the result of the function `refused`."""
    rules = faults.list()
    held = islice(((active, item) for active in rules for item in active.held if not item.is_done), HELD_MAX)
    now_ms = cluster.clock.now_ms(Domain.REQUESTS)
    return ClusterContext(
        nodes={node_id: runtime.shown_state for node_id, runtime in cluster.nodes.items()},
        rules=tuple(map(_rule, rules)),
        held=tuple(_held(active, item, now_ms) for active, item in held),
        trace_runs=trace.running,
        refusals=refused[0],
        throttles=refused[1],
    )


def _rule(active: ActiveRule) -> FaultRule:
    return FaultRule(rule=active.id, text=rule_to_text(active.rule), hits=active.hits, spent=active.spent)


def _held(active: ActiveRule, item: HeldItem, now_ms: int) -> HeldByRule:
    form = item.to_json()
    return HeldByRule(
        rule=active.id,
        at=item.at,
        node=item.node_id,
        for_ms=max(0, now_ms - item.since_ms),
        client_id=item.client_id,
        transactional_id=form["transactional_id"],
        group=form["group"],
        partitions=tuple(form["partitions"]),
        offsets=tuple(
            (f"{topic}-{index}", first, last) for topic, index, first, last in item.subjects.offsets
        ),
    )


async def refused(trace: Trace, clock: Clock) -> Refused:
    """The refused and throttled requests of the trace, equal ones counted together, the newest first."""
    refusals: dict[Refusal, tuple[int, Refusal]] = {}
    throttles: dict[Throttle, tuple[int, Throttle]] = {}
    newest = reversed(trace.refused()[-REFUSED_MAX:])
    async for exchange in in_turns(newest, PER_TURN):
        for refusal in _refusals(exchange, trace.names):
            _fold(refusals, refusal, partial(_refused, exchange, trace.names, clock))
        if exchange.throttle_ms > 0:
            _fold(throttles, _throttle(exchange), partial(_throttled, exchange, trace.names, clock))
    return _counted(refusals), _counted(throttles)


def _fold(found: dict[T, tuple[int, T]], key: T, tell: Callable[[T], T]) -> None:
    """Count a refusal or throttle in ``found`` under ``key``, the refusal or throttle without its details.

    The first call with a key is for the newest exchange, and stores what ``tell`` returns: ``key`` with the
    details.
    """
    if key in found:
        count, newest = found[key]
        found[key] = (count + 1, newest)
    elif len(found) < FOLDED_MAX:
        found[key] = (1, tell(key))


def _counted(found: Mapping[T, tuple[int, T]]) -> tuple[T, ...]:
    return tuple(replace(newest, count=count) for count, newest in found.values())


def _refused(exchange: Exchange, names: Names, clock: Clock, refusal: Refusal) -> Refusal:
    return replace(
        refusal,
        last_ms=_age_ms(exchange, clock),
        node=exchange.node_id,
        line=text_line(exchange, names),
    )


def _throttled(exchange: Exchange, names: Names, clock: Clock, throttle: Throttle) -> Throttle:
    return replace(
        throttle,
        last_ms=_age_ms(exchange, clock),
        throttle_ms=exchange.throttle_ms,
        group=_group(exchange, names),
        partitions=_partitions(exchange, names),
    )


def _partitions(exchange: Exchange, names: Names) -> tuple[str, ...]:
    """The partitions in the response to a Produce or a Fetch. A Fetch request in a session need not name them."""
    answer = answer_dict(exchange, names) or {}
    return tuple(
        f"{topic.get('name') or topic.get('topic_name') or topic.get('topic')}-{index}"
        for topic in answer.get("responses") or ()
        for each in topic.get("partitions") or topic.get("partition_responses") or ()
        if (index := each.get("partition_index", each.get("index"))) is not None
    )[:PLACES_MAX]


def _age_ms(exchange: Exchange, clock: Clock) -> int:
    """Age of an exchange, as time passes for clients: an advance of the clock does not make the exchange older."""
    at_ms = exchange.answered_ms if exchange.answered_ms is not None else exchange.arrived_ms
    return max(0, clock.now_for(at_ms, Domain.REQUESTS) - at_ms)


def _refusals(exchange: Exchange, names: Names) -> Iterator[Refusal]:
    """One refusal for each error of an exchange, without count, age and node, so that equal refusals compare equal.

    Of requests between nodes only WriteTxnMarkers counts: other errors reach the clients anyway.
    """
    if not exchange.errors or (exchange.from_node is not None and exchange.api_key != WRITE_TXN_MARKERS):
        return
    answer = answer_dict(exchange, names) or {}
    places: dict[str, list[tuple[str | None, int | None]]] = {}
    for topic, index, error in errors_in(answer):
        places.setdefault(error, []).append((topic, index))
    if not places:  # the response was too large for the trace
        places = {error_name(code): [] for code in exchange.errors}
    facts = exchange.transactions[0] if exchange.transactions else None
    for error, at in places.items():
        if error in NO_REFUSALS:
            continue
        yield Refusal(
            api=exchange.api,
            error=error,
            count=0,
            last_ms=0,
            node=-1,
            client_id=exchange.client_id,
            principal=exchange.principal,
            transactional_id=None if facts is None else facts.transactional_id,
            group=_group(exchange, names),
            producer_id=None if facts is None or facts.producer_id < 0 else facts.producer_id,
            producer_epoch=None if facts is None or facts.producer_epoch < 0 else facts.producer_epoch,
            partitions=tuple(f"{topic}-{index}" for topic, index in at if index is not None)[:PLACES_MAX],
            topics=tuple(topic for topic, index in at if topic is not None and index is None)[:PLACES_MAX],
            rule=exchange.rule,
            two_phase_commit=exchange.api_key == INIT_PRODUCER_ID
            and bool(request_dict(exchange, names).get("enable2_pc")),
        )


def _throttle(exchange: Exchange) -> Throttle:
    facts = exchange.transactions[0] if exchange.transactions else None
    return Throttle(
        client_id=exchange.client_id or "",
        principal=exchange.principal,
        api=exchange.api,
        count=0,
        last_ms=0,
        throttle_ms=0,
        transactional_id=None if facts is None else facts.transactional_id,
        rule=exchange.rule,
    )


def _group(exchange: Exchange, names: Names) -> str | None:
    """The group of a request. Skips Produce, which has no group and whose records would have to be decoded."""
    if exchange.api_key in (PRODUCE, FETCH) or exchange.request_is_cut:
        return None
    request = request_dict(exchange, names)
    group: str | None = request.get("group_id")
    if group is None and request.get("key_type") == GROUP_KEY:
        group = request.get("key") or next(iter(request.get("coordinator_keys") or ()), None)
    if group is None and exchange.api == "OffsetFetch":
        group = next((each["group_id"] for each in request.get("groups") or ()), None)
    return group or None
