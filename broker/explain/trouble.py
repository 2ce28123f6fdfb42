"""Troubles: one cause each, with its sentences; an explanation is made of the worst, and of the others behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.explain.explanation import Cause, Explanation
from broker.explain.facts import ClusterContext
from protocol.slotted import slotted

HEALTHY: Final = frozenset({Cause.NOTHING, Cause.EMPTY_LOG, Cause.ABORTED_TAIL, Cause.MARKERS_ONLY})
"""Causes that are no trouble: what an explanation says then is why nothing is wrong."""

TRACE_IS_OFF: Final = (
    "The trace is off: requests that were refused are not known. Record them: odradek trace --start"
)


@slotted(frozen=True)
class Trouble:
    """One thing that is wrong."""

    cause: Cause
    lines: tuple[str, ...]
    is_cause: bool = True
    """False: it is told among the details, and nothing need be wrong because of it."""
    is_old: bool = False
    """It has been, and what is wrong now comes before it."""


def explained(
    subject: str,
    troubles: Iterable[Trouble],
    otherwise: Trouble,
    details: Sequence[str],
    around: ClusterContext,
) -> Explanation:
    """The first of ``troubles`` that is a cause, rather one of now; then the others, the details, what could not be asked.

    ``otherwise`` is said where there is no cause, and whether refused requests would be known. Equal lines are said once.
    """
    found = list(troubles)
    causes = [each for each in found if each.is_cause]
    worst = next((each for each in causes if not each.is_old), causes[0] if causes else None)
    hint = [TRACE_IS_OFF] if worst is None and around.trace_runs is False else []
    worst = worst or otherwise
    lines = [*worst.lines]
    for each in found:
        lines += each.lines if each is not worst else ()
    return Explanation(
        subject, worst.cause, tuple(dict.fromkeys([*lines, *details, *hint, *around.not_asked]))
    )
