"""The event stream that the web page reads: summaries when they change, and new batches, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from broker.clock import stopwatch_us
from lab.control.errors import HttpError
from lab.control.forms import Given
from lab.control.node_requests import pause
from lab.control.operations import Stream, operation
from lab.control.ports import WATCHERS_MAX, Looking
from lab.control.routes.faults import rules_view
from lab.faults.values import there_is
from lab.views.ports import PARTITIONS_MAX, BatchPosition

EVENT_STREAM: Final = "text/event-stream"
SHOWN: Final = ("cluster", "transactions", "faults", "groups", "partitions")
BATCHES_OF_MAX: Final = 24
"""Largest number of partitions whose batches one stream follows."""
EVERY_MS_MIN: Final = 100
EVERY_MS_MAX: Final = 60_000
SHARE_MAX: Final = 4
"""Pause after each round of events, as a multiple of the round's duration.

So one viewer takes at most 1/5 of the event loop's time.
"""
SILENCE_MS_MAX: Final = 15_000
"""Time without an event after which a comment is sent, because proxies close silent connections."""
NAMES_MAX: Final = 8192


class Watch(Given):
    show: Annotated[
        str,
        Meta(
            max_length=NAMES_MAX,
            description="cluster, transactions, faults, groups, partitions; separated by commas.",
        ),
    ] = "cluster,transactions,faults"
    topic: (
        Annotated[str, Meta(max_length=NAMES_MAX, description="Only the partitions of this topic.")] | None
    ) = None
    first: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Index of the first partition shown.")] = 0
    count: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX, description="Number of partitions shown.")] = 20
    batches: Annotated[
        str,
        Meta(
            max_length=NAMES_MAX,
            description="topic-partition, separated by commas: their new batches are sent.",
        ),
    ] = ""
    every_ms: Annotated[int, Meta(ge=EVERY_MS_MIN, le=EVERY_MS_MAX, description="Shortest interval.")] = 500


_EXAMPLE: Final = "event: transactions\ndata: " + json.dumps(
    {"total": 1, "by_state": {"Ongoing": 1}, "transactions": []}
)


@operation("GET", "/v1/watch", answer_example=_EXAMPLE, content_type=EVENT_STREAM, may_wait=True)
async def watch(control: Looking, params: Watch) -> Stream:
    """Watch the broker as server-sent events: each summary when it has changed, and new batches.

    The name of an event is that of its summary (cluster, transactions, faults, groups, partitions), or batches. The schemas
    of the data are ClusterSummary and so on. A viewer that has disconnected costs nothing.
    """
    wanted = [each.strip() for each in params.show.split(",") if each.strip()]
    for each in wanted:
        if each not in SHOWN:
            raise HttpError(400, there_is("the summary", each, SHOWN))
    positions = [_position(each.strip()) for each in params.batches.split(",") if each.strip()]
    if len(positions) > BATCHES_OF_MAX:
        raise HttpError(
            400, f"the batches of at most {BATCHES_OF_MAX} partitions can be watched, not of {len(positions)}"
        )
    if control.watchers.now >= WATCHERS_MAX:
        raise HttpError(
            429,
            f"{WATCHERS_MAX} callers watch already: wait for one of them to disconnect, or close a web page",
        )
    return Stream(EVENT_STREAM, _events(control, params, wanted, positions))


def _position(name: str) -> BatchPosition:
    topic, _, index = name.rpartition("-")
    if not topic or not index.isdecimal():
        raise HttpError(400, f"{name} is not a partition of the form TOPIC-NUMBER")
    return BatchPosition(topic, int(index))


async def _events(
    control: Looking, params: Watch, wanted: list[str], positions: list[BatchPosition]
) -> AsyncGenerator[bytes, None]:
    with control.watchers.one_more():
        sent: dict[str, bytes] = {}
        silent_ms = 0.0
        while True:
            began_us = stopwatch_us()
            said = False
            for name in wanted:
                data = msgspec.json.encode(await _summary(control, name, params))
                if sent.get(name) != data:
                    sent[name] = data
                    said = True
                    yield _event(name, data)
                await asyncio.sleep(0)
            for position in positions:
                piece = await control.views.batches(position)
                if piece is not None:
                    said = True
                    yield _event("batches", msgspec.json.encode(piece))
                await asyncio.sleep(0)
            spent_ms = (stopwatch_us() - began_us) / 1000
            pause_ms = max(params.every_ms, SHARE_MAX * spent_ms)
            silent_ms = 0 if said else silent_ms + pause_ms
            if silent_ms >= SILENCE_MS_MAX:
                silent_ms = 0
                yield b": still here\n\n"
            await pause(pause_ms)


async def _summary(control: Looking, name: str, params: Watch) -> Any:
    match name:
        case "cluster":
            return await control.views.cluster()
        case "transactions":
            return await control.views.transactions()
        case "groups":
            return await control.views.groups()
        case "partitions":
            return await control.views.partitions(params.topic, params.first, params.count)
    return rules_view(control.faults)


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
