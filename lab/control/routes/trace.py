"""Operations on the trace: recorded exchanges, all exchanges as they happen, or a capture file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import Stream, operation
from lab.control.ports import Looking
from lab.trace.exchange import Exchange
from lab.trace.filters import TraceFilter
from lab.trace.json_form import to_json
from lab.trace.lines import text_line
from lab.trace.pcap import pcap

ENTRIES_MAX: Final = 10_000
"""Largest number of exchanges in one response. Use ``since`` for the next ones."""
FOLLOWERS_MAX: Final = 16
PACKETS_AT_ONCE: Final = 256
"""Number of exchanges of a capture file that are encoded in a thread at once, then sent."""
NUMBER_MAX: Final = 2**53 - 1
TEXT_CHARACTERS_MAX: Final = 1024
LINES: Final = "application/x-ndjson"
PCAP: Final = "application/vnd.tcpdump.pcap"

Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]


class Wanted(Given, omit_defaults=True):
    """Filters of exchanges. A filter that is left out matches everything."""

    api: Annotated[Text | None, Meta(description="EndTxn, end-txn or 26.")] = None
    version: Text | None = None
    node: Text | None = None
    connection: Text | None = None
    client_id: Text | None = None
    transactional_id: Text | None = None
    producer_id: Text | None = None
    outcome: Annotated[
        Text | None,
        Meta(description="answered, unanswered, answer_lost, connection_gone, held or in_progress."),
    ] = None
    without: Annotated[
        Text | None,
        Meta(
            description="APIs to leave out, separated by commas, such as Fetch,Heartbeat; exchanges that a rule hit stay."
        ),
    ] = None

    @property
    def filter(self) -> TraceFilter:
        said = msgspec.to_builtins(self)
        return TraceFilter.parse({name: said[name] for name in Wanted.__struct_fields__ if name in said})


class WantedForms(Wanted):
    bodies: Annotated[bool, Meta(description="Also the content of request and response.")] = True
    values: Annotated[bool, Meta(description="Also the keys and values of records.")] = False


class WantedEntries(WantedForms):
    since: Annotated[int, Meta(ge=0, le=NUMBER_MAX, description="Only exchanges after this number.")] = 0
    limit: Annotated[int, Meta(ge=1, le=ENTRIES_MAX, description="Only the newest of them.")] = 1000


class OneExchange(Given):
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX, description="The number of an exchange.")]


class ExchangeView(View):
    exchange: dict[str, Any]
    """The exchange with its bodies, in the form of lab/trace/json_form.py; ``line`` is the exchange as text."""


class WantedLines(WantedForms):
    per_second: (
        Annotated[
            int,
            Meta(
                ge=1, le=NUMBER_MAX, description="Lines per second at most; the others are counted as missed."
            ),
        ]
        | None
    ) = None


class StatusView(View):
    running: bool
    entries: int
    bytes: int
    first: int | None
    last: int | None
    pushed_out: int
    followers: int
    limits: dict[str, int]


class TraceView(View):
    status: StatusView
    exchanges: list[dict[str, Any]]
    """Exchanges in the form of lab/trace/json_form.py; ``line`` is the exchange as text."""


_STATUS_EXAMPLE: Final = {
    "running": True,
    "entries": 1,
    "bytes": 214,
    "first": 1,
    "last": 1,
    "pushed_out": 0,
    "followers": 0,
    "limits": {"entries": 20000, "bytes": 33554432, "frame_bytes": 65536},
}
_EXCHANGE_EXAMPLE: Final = {
    "line": "12:00:01.250 node 1 < producer-1@127.0.0.1:50312 EndTxn v5 #7 tx=payments commit -> ok 0.4 ms",
    "number": 1,
    "node": 1,
    "api": "EndTxn",
    "version": 5,
    "correlation_id": 7,
    "outcome": "answered",
    "took_us": 412,
}


@operation(
    "GET",
    "/v1/trace",
    answer_example={"status": _STATUS_EXAMPLE, "exchanges": [_EXCHANGE_EXAMPLE]},
    may_wait=True,
)
async def show_trace(control: Looking, params: WantedEntries) -> TraceView:
    """Show the recorded requests in the order of their arrival, each with its response if there is one."""
    found = await control.trace.search(params.filter, since=params.since, limit=params.limit)
    # Decoding this many takes longer than a turn of the event loop may.
    shown = await asyncio.to_thread(lambda: [_exchange_json(control, each, params) for each in found])
    return TraceView(status=_status(control), exchanges=shown)


@operation("GET", "/v1/trace/{number}", answer_example={"exchange": _EXCHANGE_EXAMPLE}, may_wait=True)
async def show_exchange(control: Looking, params: OneExchange) -> ExchangeView:
    """Show one recorded request with its content and the content of its response."""
    found = await control.trace.search(since=params.number - 1)
    if not found or found[0].number != params.number:
        raise HttpError(404, f"the trace has no exchange {params.number}, or has dropped it")
    whole = WantedForms(values=True)
    return ExchangeView(exchange=await asyncio.to_thread(_exchange_json, control, found[0], whole))


@operation(
    "GET",
    "/v1/trace/follow",
    answer_example=json.dumps({"status": _STATUS_EXAMPLE}) + "\n" + json.dumps(_EXCHANGE_EXAMPLE) + "\n",
    content_type=LINES,
    may_wait=True,
)
async def follow_trace(control: Looking, params: WantedLines) -> Stream:
    """Follow the trace as JSON lines: first its status, then each exchange when it is over, until you disconnect.

    An exchange that a rule holds also appears when it is held. A client that reads too slowly misses some exchanges; a line
    {"missed": n} says how many. The trace must be running.
    """
    if control.trace.status()["followers"] >= FOLLOWERS_MAX:  # type: ignore[operator]
        raise HttpError(
            429, f"{FOLLOWERS_MAX} callers follow the trace already: wait for one of them to disconnect"
        )
    return Stream(LINES, _lines(control, params, params.filter))


async def _lines(control: Looking, params: WantedLines, wanted: TraceFilter) -> AsyncGenerator[bytes, None]:
    with control.trace.follow(wanted, per_second=params.per_second) as subscription:
        yield _line({"status": msgspec.to_builtins(_status(control))})
        missed = 0
        async for exchange in subscription:
            yield _line(_exchange_json(control, exchange, params))
            if subscription.dropped > missed:
                yield _line({"missed": subscription.dropped - missed})
                missed = subscription.dropped


@operation(
    "GET",
    "/v1/trace.pcap",
    answer_example="a capture file, for Wireshark and tshark",
    content_type=PCAP,
    may_wait=True,
)
async def capture_trace(control: Looking, params: Wanted) -> Stream:
    """Get the recorded requests and responses as a capture file for Wireshark and tshark."""
    return Stream(PCAP, _pieces(await control.trace.search(params.filter)))


async def _pieces(exchanges: list[Exchange]) -> AsyncGenerator[bytes, None]:
    pieces = pcap(exchanges)
    while piece := await asyncio.to_thread(lambda: b"".join(islice(pieces, PACKETS_AT_ONCE))):
        yield piece


@operation("POST", "/v1/trace/start", answer_example=_STATUS_EXAMPLE)
async def start_trace(control: Looking) -> StatusView:
    """Start the trace: it records every request from now on."""
    control.trace.start()
    return _status(control)


@operation("POST", "/v1/trace/stop", answer_example={**_STATUS_EXAMPLE, "running": False})
async def stop_trace(control: Looking) -> StatusView:
    """Stop the trace: it records no further requests. Recorded ones stay."""
    control.trace.stop()
    return _status(control)


def _status(control: Looking) -> StatusView:
    return msgspec.convert(control.trace.status(), type=StatusView)


def _exchange_json(control: Looking, exchange: Exchange, params: WantedForms) -> dict[str, Any]:
    names = control.trace.names
    shown = to_json(exchange, names, bodies=params.bodies, values=params.values)
    return {"line": text_line(exchange, names), **shown}


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
