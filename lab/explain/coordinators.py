"""Explains why a coordinator does not return the state of a group or an id: not available, loading, held by a rule."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, FaultRule, GroupFacts, IdFacts, PartitionFacts
from lab.explain.partitions import below_min_isr, no_leader, offline, replica_away
from lab.explain.transactions import held_trouble
from lab.explain.trouble import Trouble
from lab.explain.words import away, capital, duration_text, is_silent, release, rule_text, waking

_LOADING: Final = "COORDINATOR_LOAD_IN_PROGRESS"
_OF_IDS: Final = (
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
)
_OF_GROUPS: Final = (
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
    "TxnOffsetCommit",
)


def coordinator_trouble(at: IdFacts | GroupFacts, around: ClusterContext) -> Trouble | None:
    """The problem that makes the coordinator of a group or a transactional id return no state; None if it returns
    the state.
    """
    name = f"group {at.group}" if isinstance(at, GroupFacts) else at.transactional_id
    home = at.offsets_partition if isinstance(at, GroupFacts) else at.state_partition
    if at.coordinator_error == _LOADING:
        return _loading(name, home, at.coordinator, around)
    head = f"The coordinator of {name} is not available"
    gone = away(around, at.coordinator, f", which leads {home},")
    if gone is not None and at.coordinator is not None:
        if is_silent(around, at.coordinator):
            head = f"The coordinator of {name} could not be asked"
        lines = (f"{head}: {gone}.", *waking(around, [at.coordinator]))
        return Trouble(Cause.COORDINATOR_NOT_AVAILABLE, lines)
    if at.coordinator is None:
        return Trouble(Cause.COORDINATOR_NOT_AVAILABLE, _no_leader(head, home, at.home, around))
    stuck = _without_files(head, at, around) or _cannot_write(name, at, around)
    if stuck is not None:
        return stuck
    if at.coordinator_error is None:
        return _to_clients(name, at, around, head)
    answered = _answers(name, at.coordinator_error, around)
    if answered is not None:
        rule, api = answered
        return Trouble(
            Cause.COORDINATOR_NOT_AVAILABLE,
            (
                f"{head}: {rule_text(around, rule)} responds to {api} with {at.coordinator_error}.",
                f"Remove the rule: odradek fault clear {rule}",
            ),
        )
    for held in around.held:
        if held.at == "FindCoordinator" and name in (held.transactional_id, f"group {held.group}"):
            return held_trouble(held, around, f"{head}: ", Cause.COORDINATOR_NOT_AVAILABLE)
    first = f"{head}: node {at.coordinator}, which leads {home}, returns {at.coordinator_error}."
    return Trouble(Cause.COORDINATOR_NOT_AVAILABLE, (first,))


def _without_files(head: str, at: IdFacts | GroupFacts, around: ClusterContext) -> Trouble | None:
    found = None if at.home is None else offline(at.home, around)
    if found is None:
        return None
    first, *more = found.lines
    return Trouble(Cause.COORDINATOR_NOT_AVAILABLE, (f"{head}: {first}", *more))


def _cannot_write(name: str, at: IdFacts | GroupFacts, around: ClusterContext) -> Trouble | None:
    """The problem of a coordinator that cannot append to its log, or whose appends wait for a replica; or None."""
    if at.home is None:
        return None
    who = f"The coordinator of {name}, node {at.coordinator}"
    below = below_min_isr(at.home, around)
    if below is not None:
        first, *more = below.lines
        text = f"{who}, cannot write its state: {first[:1].lower()}{first[1:]}"
        return Trouble(Cause.COORDINATOR_NOT_AVAILABLE, (text, *more))
    # A group can be read anyway, and its commits wait at most offsets.commit.timeout.ms.
    waits = replica_away(at.home, around) if isinstance(at, IdFacts) else None
    if waits is None:
        return None
    first, *more = waits.lines
    text = f"{who}, waits with each state that it writes: {first[:1].lower()}{first[1:]}"
    return Trouble(waits.cause, (text, *more))


def _to_clients(name: str, at: IdFacts | GroupFacts, around: ClusterContext, head: str) -> Trouble | None:
    """The problem of a healthy coordinator in whose place a rule responds to clients with an error; else None."""
    apis = _OF_GROUPS if isinstance(at, GroupFacts) else _OF_IDS
    for error in ("COORDINATOR_NOT_AVAILABLE", _LOADING):
        found = _rule_that_answers(name, error, around)
        if found is None or found[0].spent or not any(fnmatchcase(api, found[1]) for api in apis):
            continue
        rule, api = found[0].rule, found[1]
        by = f"{rule_text(around, rule)} responds to {api} with {error}."
        cause = Cause.COORDINATOR_LOADING if error == _LOADING else Cause.COORDINATOR_NOT_AVAILABLE
        first = capital(by) if error == _LOADING else f"{head}: {by}"
        return Trouble(cause, (first, f"Remove the rule: odradek fault clear {rule}"))
    return None


def _no_leader(head: str, home: str, at: PartitionFacts | None, around: ClusterContext) -> tuple[str, ...]:
    """Sentences about a coordinator's partition without a leader: which nodes do not run, if known, and how to
    start them.
    """
    if at is not None:
        first, *more = no_leader(at, around).lines
        return (f"{head}: {first}", *more)
    nodes = sorted(around.nodes or ())
    gone = [text for node in nodes if (text := away(around, node))]
    why = f" ({', '.join(gone)})" if gone else ""
    return (f"{head}: {home} has no leader{why}.", *waking(around, nodes))


def _loading(name: str, home: str, node: int | None, around: ClusterContext) -> Trouble:
    where = "" if node is None else f", node {node},"
    head = f"The coordinator of {name}{where} is loading {home}"
    for held in around.held:
        if held.at == "coordinator.load" and (held.node == node or home in held.partitions):
            by = f"{rule_text(around, held.rule)} holds it for {duration_text(held.for_ms)}"
            return Trouble(Cause.COORDINATOR_LOADING, (f"{head}: {by}.", release(held)))
    answered = _answers(name, _LOADING, around)
    if answered is not None:
        rule, api = answered
        by = f"{capital(rule_text(around, rule))} responds to {api} for {name} with {_LOADING}."
        return Trouble(Cause.COORDINATOR_LOADING, (by, f"Remove the rule: odradek fault clear {rule}"))
    again = "Clients ask again until it has read its log."
    return Trouble(Cause.COORDINATOR_LOADING, (f"{head}: it returns {_LOADING}.", again))


def _answers(name: str, error: str, around: ClusterContext) -> tuple[int, str] | None:
    """(rule id, API) of the rule that responds to requests for ``name`` with ``error``; None if no rule does.

    If the trace does not show which rule has responded, any rule with this error that has hits is returned.
    """
    for refusal in around.refusals:
        about = name in (refusal.transactional_id, f"group {refusal.group}")
        if refusal.rule is not None and refusal.error == error and about:
            return refusal.rule, refusal.api
    found = _rule_that_answers(name, error, around)
    return None if found is None else (found[0].rule, found[1])


def _rule_that_answers(name: str, error: str, around: ClusterContext) -> tuple[FaultRule, str] | None:
    """A rule with this error that has hits, and the API in the rule's text; None if there is no such rule."""
    for rule in around.rules or ():
        api, matched, action = rule.parts
        named = matched.get("transactional_id")
        if "group" in matched:
            named = f"group {matched['group']}"
        is_named = named is None or fnmatchcase(name, named)
        if rule.hits and action == f"error {error}" and is_named:
            return rule, api
    return None
