"""Time: what the broker takes it to be, and how to move it on."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from broker.clock.durations import DURATION_MS_MAX, parse_duration_ms
from broker.clock.virtual import parse_domains
from broker.control.errors import HttpError
from broker.control.forms import Given, View
from broker.control.operations import operation
from broker.control.ports import Control

DOMAINS_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 100

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]


class ClockView(View):
    now_ms: int
    """The time with which the broker stamps records now, in milliseconds since the epoch."""
    ahead_ms: dict[str, int]
    """How far each domain is ahead of real time."""
    next_timer_ms: dict[str, int | None]
    """In how many milliseconds of its domain the next timer is due; null where there is none."""


class Advance(Given):
    by: Annotated[Name | None, Meta(description="A duration: 7d, 1h30m, 500ms.")] = None
    by_ms: Annotated[Milliseconds | None, Meta(description="The same in milliseconds.")] = None
    only: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=DOMAINS_MAX,
            description="Which kinds of time move; none of them named: transactions and ids.",
        ),
    ] = ()


_EXAMPLE: Final = {
    "now_ms": 1795291007000,
    "ahead_ms": {"transactions": 604800000, "ids": 604800000, "retention": 0},
    "next_timer_ms": {"transactions": 10000, "ids": 3600000, "retention": None},
}


@operation("GET", "/v1/clock", answer_example=_EXAMPLE)
async def show_clock(control: Control) -> ClockView:
    """Show the broker's time, and how far each domain is ahead of real time."""
    clock = control.clock
    return ClockView(now_ms=clock.now_ms(), ahead_ms=clock.offsets(), next_timer_ms=clock.pending())


@operation(
    "POST",
    "/v1/clock/advance",
    body_example={"by": "7d", "only": ["transactions", "ids"]},
    answer_example=_EXAMPLE,
    may_wait=True,
)
async def advance_clock(control: Control, body: Advance) -> ClockView:
    """Advance the clock: all timers that fall due fire in their order before the response.

    docs/time.md describes the domains, and what advancing them does to records.
    """
    if (body.by is None) == (body.by_ms is None):
        raise HttpError(400, 'say how far, either as {"by": "7d"} or as {"by_ms": 604800000}')
    by_ms = parse_duration_ms(body.by) if body.by is not None else body.by_ms
    assert by_ms is not None
    await control.clock.advance(by_ms, parse_domains(body.only))
    return await show_clock(control)
