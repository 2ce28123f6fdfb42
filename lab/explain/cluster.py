"""Explains everything that is wrong in a cluster now, the worst first, and several partitions together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import (
    ClusterContext,
    ClusterFacts,
    HeldByRule,
    IdFacts,
    PartitionFacts,
    Refusal,
    TransactionFacts,
)
from lab.explain.groups import explain_group
from lab.explain.ids import explain_id
from lab.explain.partitions import explain_partition
from lab.explain.refusals import refusal_troubles, throttle_troubles
from lab.explain.transactions import held_trouble
from lab.explain.trouble import HEALTHY, TRACE_IS_OFF, Trouble, rule_there, unnamed_rules
from lab.explain.words import all_away, away, capital, counted, listed, rule_text, waking

SUBJECT: Final = "the cluster"
SHOWN_MAX: Final = 20
YOUNG_MS: Final = 200
"""Age in milliseconds from which an open or decided transaction is reported. Younger ones are normal."""
_ORDER: Final = tuple(Cause)
_WORST: Final = (
    Cause.NODE_AWAY,
    Cause.NO_LEADER,
    Cause.OFFLINE,
    Cause.LEADER_AWAY,
    Cause.COORDINATOR_NOT_AVAILABLE,
    Cause.COORDINATOR_LOADING,
    Cause.BELOW_MIN_ISR,
    Cause.REPLICA_AWAY,
    Cause.HANGING_TRANSACTION,
    Cause.MARKER_HELD,
    Cause.MARKER_LEADER_AWAY,
    Cause.REQUEST_HELD,
    Cause.BEGINS_IN_THE_FUTURE,
    Cause.GROUP_REBALANCING,
    Cause.MEMBER_STOPPED_POLLING,
)
"""Causes that sort before all others. All other causes have the order of `Cause`."""


def severity(found: Explanation) -> tuple[bool, int]:
    """Sort key of explanations: the worst first, those with nothing wrong last."""
    if found.cause in _WORST:
        return False, _WORST.index(found.cause)
    return found.cause in HEALTHY, len(_WORST) + _ORDER.index(found.cause)


def explain_topic(places: Iterable[PartitionFacts], around: ClusterContext) -> list[Explanation]:
    """Explanations of the partitions ``places``, one each, those with a problem first."""
    return sorted((explain_partition(each, around) for each in places), key=severity)


def folded(topic: str, found: Sequence[Explanation]) -> list[Explanation]:
    """Merge the explanations ``found`` of a topic's partitions.

    All healthy partitions have one explanation afterwards, and so do partitions with equal problems.
    """
    wrong = _alike(each for each in found if each.cause not in HEALTHY)
    healthy = [each for each in found if each.cause in HEALTHY]
    if len(healthy) < 2:
        return wrong + healthy
    number = counted(len(healthy), "more partition" if wrong else "partition")
    line = (
        f"{number} of {topic}: nothing is wrong."
        if wrong
        else f"Nothing is wrong with the {number} of {topic}."
    )
    common = [each for each in healthy[0].lines[1:] if all(each in other.lines for other in healthy)]
    return [*wrong, Explanation(topic, Cause.NOTHING, (line, *common))]


def _alike(found: Iterable[Explanation]) -> list[Explanation]:
    """Merge explanations whose first lines differ only in their subjects: keep the first explanation, and add a line
    with the subjects of the others.
    """
    alike: dict[tuple[Cause, str], list[Explanation]] = {}
    for each in found:
        alike.setdefault((each.cause, each.lines[0].replace(each.subject, "")), []).append(each)
    return [
        first
        if not others
        else Explanation(
            first.subject,
            first.cause,
            (*first.lines, f"The same holds for {listed([each.subject for each in others])}."),
        )
        for first, *others in alike.values()
    ]


def explain_cluster(facts: ClusterFacts, around: ClusterContext) -> list[Explanation]:
    """Explanations of everything that is wrong now, at most ``SHOWN_MAX``, the worst first.

    If nothing is wrong, the only explanation says so. Further explanations say how many are not shown, and which
    requests timed out.
    """
    quiet = dataclasses.replace(around, not_asked=())
    found = [*_nodes(around), *_alike(_partitions(facts, quiet))]
    found += [each for at in facts.groups if (each := explain_group(at, quiet)).cause not in HEALTHY]
    found += _transactions(facts, quiet)
    found += _clients(facts, quiet)
    said = {line for each in found for line in each.lines}
    found += [each for each in _held(around.held, quiet) if said.isdisjoint(each.lines)]
    found = sorted(_distinct(found), key=severity)
    found += [*_distinct(_clients(facts, quiet, is_old=True)), *_rules(found, quiet)]
    left_out = facts.left_out + max(0, len(found) - SHOWN_MAX)
    found = found[:SHOWN_MAX]
    if left_out:
        what = "partitions, transactions, groups and clients that may be in trouble"
        found.append(
            Explanation(SUBJECT, Cause.UNKNOWN, (f"Of the {what}, {left_out} more are not shown here.",))
        )
    if around.not_asked:
        found.append(Explanation(SUBJECT, Cause.UNKNOWN, around.not_asked))
    return found or [Explanation(SUBJECT, Cause.NOTHING, tuple(_nothing(around)))]


def _nothing(around: ClusterContext) -> Iterator[str]:
    waits = "no partition, transaction or group waits for anything"
    nodes = len(around.nodes or ())
    if around.nodes is None:
        yield f"Nothing is wrong: {waits}."
    elif around.rules is None:  # a client sees only nodes that are registered
        yield f"Nothing is wrong: {counted(nodes, 'node')} responded, and {waits}."
    else:
        run = "its node runs" if nodes == 1 else f"all {nodes} nodes run"
        yield f"Nothing is wrong: {run}, and {waits}."
    rules = [rule_text(around, each.rule) for each in around.rules or ()]
    if rules:
        yield f"{counted(len(rules), 'fault rule')} {'is' if len(rules) == 1 else 'are'} there: {listed(rules)}."
    yield "The lag of a group is not looked at here: odradek explain --group GROUP"
    if around.trace_runs is False:
        yield TRACE_IS_OFF


def _rules(found: Iterable[Explanation], around: ClusterContext) -> Iterator[Explanation]:
    """Explanations of rules that have hit and may hit again, unless one of ``found`` names them."""
    shown = [line for each in found for line in each.lines]
    for each in unnamed_rules(around, shown):
        clear = f"Remove the rule: odradek fault clear {each.rule}"
        yield Explanation(f"rule {each.rule}", Cause.ACTIVE_RULE, (rule_there(around, each), clear))


def _distinct(found: Iterable[Explanation]) -> Iterator[Explanation]:
    """Yield the explanations without those whose first line an earlier explanation has.

    Explanations of two requests that one rule holds, for example, may have equal first lines.
    """
    said: set[str] = set()
    for each in found:
        if each.lines[0] not in said:
            said.add(each.lines[0])
            yield each


def _nodes(around: ClusterContext) -> Iterator[Explanation]:
    for node in sorted(around.nodes or ()):
        gone = away(around, node)
        if gone is not None:
            yield Explanation(f"node {node}", Cause.NODE_AWAY, (f"{capital(gone)}.", *waking(around, [node])))


def _partitions(facts: ClusterFacts, around: ClusterContext) -> Iterator[Explanation]:
    """Explanations of partitions with a problem.

    A replica that is not in the ISR because its node does not run is left out, since the node has its own explanation.
    """
    for at in facts.partitions:
        found = explain_partition(at, around)
        missing = [node for node in at.replicas if node not in at.isr]
        is_explained = (
            found.cause is Cause.UNDER_REPLICATED and len(all_away(around, missing)) == len(missing)
        ) or (found.cause is Cause.REPLICA_AWAY and bool(all_away(around, at.isr)))
        is_usual = _is_usual(found.cause, at.open[0].owner if at.open else None)
        if found.cause not in HEALTHY and not is_explained and not is_usual:
            yield found


def _is_usual(cause: Cause, at: TransactionFacts | None) -> bool:
    """Whether ``cause`` is that readers wait for the transaction ``at``, and ``at`` is younger than ``YOUNG_MS``.

    Under load readers wait for such young transactions all the time.
    """
    if at is None or cause not in (Cause.OPEN_TRANSACTION, Cause.MARKER_ON_THE_WAY):
        return False
    age_ms = at.open_ms if cause is Cause.OPEN_TRANSACTION else at.decided_ms
    return age_ms is not None and 0 <= age_ms < YOUNG_MS


def _transactions(facts: ClusterFacts, around: ClusterContext) -> Iterator[Explanation]:
    """Explanations of transactions that no explanation of a partition contains.

    Such transactions have written no records yet, or their partitions have no leader.
    """
    read = {at.name: at for at in facts.partitions}
    shown = {
        each.owner.transactional_id for at in facts.partitions for each in at.open if each.owner is not None
    }
    for each in facts.transactions:
        if each.transactional_id in shown:
            continue
        at = IdFacts(
            transactional_id=each.transactional_id,
            state_partition="",
            coordinator=each.coordinator,
            transaction=each,
            places=tuple(read[name] for name in each.partitions if name in read),
        )
        found = explain_id(at, around)
        if not _is_usual(found.cause, each):
            yield found


def _clients(facts: ClusterFacts, around: ClusterContext, *, is_old: bool = False) -> Iterator[Explanation]:
    """Explanations of recent refusals and throttles; of older ones if ``is_old``.

    Those that concern partitions or groups in ``facts`` are left out: the explanations of the partitions and
    groups contain them.
    """
    names = {at.name for at in facts.partitions}
    groups = {at.group for at in facts.groups}
    refused = [
        each
        for each in around.refusals
        if not names.intersection(each.partitions) and each.group not in groups
    ]
    for each in refused:
        yield from _as_explanations(_whose(each), refusal_troubles(around, [each]), is_old)
    throttled = [each for each in around.throttles if not names.intersection(each.partitions)]
    for throttle in throttled:
        shown = throttle_troubles(around, [throttle])
        yield from _as_explanations(f"client {throttle.client_id}", shown, is_old)


def _as_explanations(subject: str, troubles: Iterable[Trouble], is_old: bool) -> Iterator[Explanation]:
    for each in troubles:
        if each.is_cause and each.is_old is is_old:
            yield Explanation(subject, each.cause, each.lines)


def _whose(each: Refusal) -> str:
    if each.transactional_id is not None:
        return f"transactional id {each.transactional_id}"
    return f"group {each.group}" if each.group is not None else f"client {each.client_id or 'unknown'}"


def _held(held: Iterable[HeldByRule], around: ClusterContext) -> Iterator[Explanation]:
    for each in held:
        yield Explanation(f"rule {each.rule}", Cause.REQUEST_HELD, held_trouble(each, around).lines)
