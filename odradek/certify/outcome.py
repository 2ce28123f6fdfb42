"""The verdicts of a certificate, their exit codes and their precedence."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.errors import OdradekError


class Verdict(Enum):
    """The verdict of a certificate. If several apply, the first one in this order is reported."""

    FAILED = "failed"
    """A run with a fault had a finding: lost, duplicated, torn, reordered, changed, unexpected, stuck, refused by the check.
    """
    NOT_JUDGED = "not judged"
    """There is nothing to compare with: a run without faults did not finish, or two of them differ."""
    INTERRUPTED = "interrupted"
    """The command was interrupted before its budget was used up."""
    NO_PROMISE = "no promise"
    """The reference runs show no mechanism that could make the job exactly once, regardless of the other runs."""
    INCOMPLETE = "incomplete"
    """No failure was found, but fewer faults were tried than a certificate needs."""
    CLEAN = "clean"
    """Exactly once: each fault that a certificate needs was hit, had an effect, and caused no failure."""

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
"""Verdicts that ``--accept`` can accept: the exit code is then 0, the verdict is unchanged."""


class Again(Enum):
    """The outcome of ``odradek certify again``, with its exit code."""

    CAME_BACK = "came back"
    DID_NOT = "did not come back"
    NOT_REACHED = "not reached"
    """There was no try in which each fault of the plan was injected and had an effect."""

    @property
    def exit_code(self) -> int:
        return {Again.DID_NOT: 0, Again.CAME_BACK: 1, Again.NOT_REACHED: 3}[self]


class NotJudged(OdradekError):
    """The error for a job without expected outputs.

    A run without faults did not finish or wrote nothing, two of these runs differ, or a service answers from its memory of
    an earlier run.
    """
