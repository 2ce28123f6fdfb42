"""What the end of a transaction takes: a list of effects, which `broker.transactions.ending` carries out in their order.

Pure. The order is the promise of KIP-98: the decision is in the log before a marker is written, and every marker is
committed before CompleteCommit or CompleteAbort is appended.
"""

from __future__ import annotations

from typing import Final

from broker.transactions.transaction import Answer, Transition
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted


class Prepare(NamedTuple):
    """Append PrepareCommit or PrepareAbort; the rest waits for its commit. The client gets the error of a failed append."""

    transition: Transition


class Respond(NamedTuple):
    """Give the client its response."""

    answer: Answer


class Pause(NamedTuple):
    """What follows waits so long."""

    delay_ms: int


class WriteMarkers(NamedTuple):
    """Begin to write a marker into each partition; ``then`` follows once all of them are committed."""

    then: tuple[Effect, ...]


@slotted(frozen=True)
class Complete:
    """Append CompleteCommit or CompleteAbort."""


Effect = Prepare | Respond | Pause | WriteMarkers | Complete

COMPLETE: Final = (Complete(),)
MARKERS_THEN_COMPLETE: Final = WriteMarkers(COMPLETE)


def markers_first(transition: Transition) -> tuple[Effect, ...]:
    """The client is answered behind the first try at each marker: its next transaction does not meet this one unfinished."""
    return (Prepare(transition), MARKERS_THEN_COMPLETE, Respond(transition.answer))


def as_kafka(transition: Transition, marker_delay_ms: int) -> tuple[Effect, ...]:
    """The client is answered as soon as the decision is committed (``odradek.commit.order=kafka``)."""
    return (Prepare(transition), Respond(transition.answer), Pause(marker_delay_ms), MARKERS_THEN_COMPLETE)
