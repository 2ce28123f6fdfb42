"""What a certificate comes to: the one table of verdicts, their exit codes and their order of precedence."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Verdict(Enum):
    """The verdict of a certificate. Where several hold, the first one in this order is said."""

    FAILED = "failed"
    """A run with a fault was lost, duplicated, torn, reordered, changed, unexpected, stuck or refused by the check."""
    NOT_JUDGED = "not judged"
    """There is nothing to compare with: a run without a fault did not finish, or two of them differ."""
    INTERRUPTED = "interrupted"
    """The command was ended before its budget was over."""
    NO_PROMISE = "no promise"
    """Nothing in the reference run could keep the job exactly once, whatever the runs have shown."""
    INCOMPLETE = "incomplete"
    """No failure was found, and less was tried than a certificate needs."""
    CLEAN = "clean"
    """Exactly once: each fault that a certificate needs has struck, had an effect, and did no harm."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]


EXIT_CODES: Final = {
    Verdict.CLEAN: 0,
    Verdict.FAILED: 1,
    Verdict.NOT_JUDGED: 2,
    Verdict.INCOMPLETE: 3,
    Verdict.NO_PROMISE: 4,
    Verdict.INTERRUPTED: 130,
}
ACCEPTABLE: Final = (Verdict.INCOMPLETE, Verdict.NO_PROMISE)
"""Verdicts that ``--accept`` takes: the exit code is then 0, the verdict the same."""


class Again(Enum):
    """What ``odradek certify again`` comes to, with an exit code for each."""

    CAME_BACK = "came back"
    DID_NOT = "did not come back"
    NOT_REACHED = "not reached"
    """In no try did all faults of the plan strike and have an effect."""

    @property
    def exit_code(self) -> int:
        return {Again.DID_NOT: 0, Again.CAME_BACK: 1, Again.NOT_REACHED: 3}[self]
