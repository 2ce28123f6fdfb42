"""Operations on time: show and advance the broker's clock, and set the skew of one node's clock."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from broker.clock.durations import DURATION_MS_MAX, SKEW_MS_MAX, parse_duration_ms, parse_skew_ms
from broker.clock.virtual import AdvanceCancelled, Progress, parse_domains
from broker.cluster import NoSuchNode
from lab.cluster.skew import skew
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control
from lab.control.routes.cluster import NODE_EXAMPLE, NodeView, OneNode, node_view

DOMAINS_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 100

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]


class AdvanceView(View):
    by_ms: int
    moved_ms: int
    """How far this advance has moved the clock so far, in milliseconds."""
    only: tuple[str, ...]
    waiting: int
    """Number of further advances that wait for this one to end."""


class ClockView(View):
    now_ms: int
    """Current time of the broker, which becomes record timestamps, in milliseconds since the epoch."""
    ahead_ms: dict[str, int]
    """How far each domain is ahead of real time, in milliseconds."""
    next_timer_ms: dict[str, int | None]
    """By domain: milliseconds until the domain's next timer fires; null if the domain has no timer."""
    advance: AdvanceView | None
    """The advance in progress; null if there is none."""


class Advance(Given):
    by: Annotated[Name | None, Meta(description="A duration: 7d, 1h30m, 500ms.")] = None
    by_ms: Annotated[
        Milliseconds | None, Meta(description="The duration in milliseconds, instead of by.")
    ] = None
    only: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=DOMAINS_MAX,
            description="The domains to advance; if left out: transactions and ids.",
        ),
    ] = ()


class Skew(Given):
    by: Annotated[
        Name | None,
        Meta(description="A duration: 5m is ahead of the cluster's clock, -30s behind it, 0 not skewed."),
    ] = None
    by_ms: Annotated[
        Annotated[int, Meta(ge=-SKEW_MS_MAX, le=SKEW_MS_MAX)] | None,
        Meta(description="The duration in milliseconds, instead of by."),
    ] = None


_EXAMPLE: Final = {
    "now_ms": 1795291007000,
    "ahead_ms": {"transactions": 604800000, "ids": 604800000, "retention": 0},
    "next_timer_ms": {"transactions": 10000, "ids": 3600000, "retention": None},
    "advance": None,
}


@operation("GET", "/v1/clock", answer_example=_EXAMPLE)
async def show_clock(control: Control) -> ClockView:
    """Show the broker's time, how far each domain is ahead of real time, and the advance in progress."""
    clock = control.clock
    return ClockView(
        now_ms=clock.now_ms(),
        ahead_ms=clock.offsets(),
        next_timer_ms=clock.pending(),
        advance=_advance_view(clock.progress()),
    )


def _advance_view(progress: Progress | None) -> AdvanceView | None:
    if progress is None:
        return None
    return AdvanceView(
        by_ms=progress.by_ms,
        moved_ms=progress.moved_ms,
        only=tuple(domain.value for domain in progress.domains),
        waiting=progress.waiting,
    )


@operation(
    "POST",
    "/v1/clock/advance",
    body_example={"by": "7d", "only": ["transactions", "ids"]},
    answer_example=_EXAMPLE,
    may_wait=True,
    ends_with_caller=True,
)
async def advance_clock(control: Control, body: Advance) -> ClockView:
    """Advance the clock. All timers that fall due fire in their order before the response.

    docs/time.md describes the domains, and what an advance does to records. A second call waits for the first. If the
    caller disconnects, its advance is cancelled, and the clock stays at the time that it has reached.
    """
    if (body.by is None) == (body.by_ms is None):
        raise HttpError(400, 'give the duration, either as {"by": "7d"} or as {"by_ms": 604800000}')
    by_ms = parse_duration_ms(body.by) if body.by is not None else body.by_ms
    assert by_ms is not None
    try:
        async with control.cluster.lifecycle.call():
            await control.clock.advance(by_ms, parse_domains(body.only))
    except AdvanceCancelled as error:
        raise HttpError(409, str(error)) from None
    return await show_clock(control)


@operation("DELETE", "/v1/clock/advance", answer_example=_EXAMPLE)
async def cancel_advance(control: Control) -> ClockView:
    """Cancel the advance in progress, and those that wait for it.

    The clock stays at the time that it has reached; waiting callers get 409. Does nothing if there is no advance.
    """
    await control.clock.cancel()
    return await show_clock(control)


@operation(
    "POST",
    "/v1/nodes/{node_id}/skew",
    body_example={"by": "-30s"},
    answer_example={**NODE_EXAMPLE, "skew_ms": -30_000},
)
async def skew_node(control: Control, params: OneNode, body: Skew) -> NodeView:
    """Set the clock of a node ahead of the cluster's clock, or behind it; 0 removes the skew.

    The node uses that clock for record timestamps and for ages. Timers are not affected. A stopped or killed node keeps its
    skew.
    """
    if (body.by is None) == (body.by_ms is None):
        raise HttpError(400, 'give the skew, either as {"by": "-30s"} or as {"by_ms": -30000}')
    by_ms = parse_skew_ms(body.by) if body.by is not None else body.by_ms
    assert by_ms is not None
    try:
        async with control.cluster.lifecycle.call():
            skew(control.cluster, params.node_id, by_ms)
    except NoSuchNode as error:
        raise HttpError(404, str(error)) from None
    return node_view(control.cluster, control.cluster.nodes[params.node_id])
