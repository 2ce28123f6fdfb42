"""Problems: each has a cause and sentences. An explanation consists of the worst problem, followed by the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import ClusterContext, FaultRule
from lab.explain.words import capital, rule_text, times
from protocol.slotted import slotted

HEALTHY: Final = frozenset({Cause.NOTHING, Cause.EMPTY_LOG, Cause.ABORTED_TAIL, Cause.MARKERS_ONLY})
"""Causes of explanations that report no problem, but say why nothing is wrong."""

TRACE_IS_OFF: Final = (
    "The trace is off: requests that were refused are not known. Record them: odradek trace --start"
)


@slotted(frozen=True)
class Trouble:
    """A problem of a partition, group or transactional id, or a note without a problem: its cause, and sentences."""

    cause: Cause
    lines: tuple[str, ...]
    is_cause: bool = True
    """False for a detail that does not mean that anything is wrong."""
    is_old: bool = False
    """Whether the problem is from the past. Present problems are listed first."""


def explained(
    subject: str,
    troubles: Iterable[Trouble],
    otherwise: Trouble,
    details: Sequence[str],
    around: ClusterContext,
) -> Explanation:
    """Combine the problems of ``subject`` (such as ``orders-0``) and details into an explanation.

    The main problem comes first: the first one with ``is_cause``, an old one only if there is no present one. Its cause
    is that of the explanation. The other problems and ``details`` follow. If there is no main problem, ``otherwise``
    replaces it, and lines are added for `unnamed_rules` and for a trace that is off. Sentences about nodes that did not
    respond in time come last. Equal lines are not repeated.
    """
    found = list(troubles)
    causes = [each for each in found if each.is_cause]
    worst = next((each for each in causes if not each.is_old), causes[0] if causes else None)
    is_well, worst = worst is None, worst or otherwise
    lines = [*worst.lines]
    for each in found:
        lines += each.lines if each is not worst else ()
    lines += details
    if is_well:
        lines += [rule_there(around, each) for each in unnamed_rules(around, lines)]
        lines += [TRACE_IS_OFF] if around.trace_runs is False else []
    return Explanation(subject, worst.cause, tuple(dict.fromkeys([*lines, *around.not_asked])))


def unnamed_rules(around: ClusterContext, lines: Iterable[str]) -> list[FaultRule]:
    """Rules that have hits, may hit again, and are named by none of these lines."""
    text = "\n".join(lines)
    active = [each for each in around.rules or () if each.hits and not each.spent]
    texts = {each.rule: rule_text(around, each.rule) for each in active}
    return [each for each in active if texts[each.rule] not in text and capital(texts[each.rule]) not in text]


def rule_there(around: ClusterContext, rule: FaultRule) -> str:
    return f"{capital(rule_text(around, rule.rule))} exists, and has hit {times(rule.hits)}."
