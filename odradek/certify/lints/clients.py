"""Bugs of client libraries that prevent a correct job from finishing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints.evidence import Lint

_LIBRDKAFKA: Final = re.compile(r"(?:rdkafka-|^)(\d+)\.(\d+)")
_BY_RULE: Final = frozenset({"answer_lost", "held"})
_REBOOTSTRAPS: Final = (2, 10)
"""The first librdkafka version with metadata.recovery.strategy=rebootstrap as default (KIP-899)."""


def only_broker_dropped(exchanges: Sequence[Exchange], exits: Sequence[tuple[int, int]] = ()) -> Lint | None:
    """Lint for a stuck run in which librdkafka dropped the only broker after the connection to it broke.

    The client may then wait forever for the response to a request on that connection (librdkafka's issues 5511 and 5456;
    docs/faults.md). None if the trace does not show this, or if an instance has ended.
    """
    if exits:
        return None
    versions = [found for each in exchanges if (found := _librdkafka(each)) is not None]
    brokers = {len((each.answer or {}).get("brokers") or ()) for each in exchanges if each.api == "Metadata"}
    broken = [each for each in _broken(exchanges) if not _got_through(exchanges, each)]
    if not versions or max(versions) < _REBOOTSTRAPS or brokers != {1} or not broken:
        return None
    version = ".".join(map(str, max(versions)))
    return Lint(
        "only-broker-dropped",
        f"librdkafka {version} drops the only broker of a cluster when the connection breaks, and may wait forever; "
        "this does not happen with several brokers. Set metadata.recovery.strategy=none, or certify with --nodes 3",
        broken[0].line,
    )


def _broken(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Exchanges whose connection broke before a later connection was opened.

    Other broken connections do not count: at its end, the job closes all connections.
    """
    seen: set[str] = set()
    newest = 0
    for number, each in enumerate(exchanges):
        if each.peer not in seen:
            seen.add(each.peer)
            newest = number
    return [
        each
        for number, each in enumerate(exchanges)
        if each.outcome in _BY_RULE or (each.outcome == "connection_gone" and number < newest)
    ]


def _got_through(exchanges: Sequence[Exchange], broken: Exchange) -> bool:
    """Whether the client got a response on a connection that it opened after the break.

    The response must have the same transactional id as the broken exchange. If the exchange has none, the response
    must have the same group, or else the same API.
    """
    at = next(number for number, each in enumerate(exchanges) if each is broken)
    seen = {each.peer for each in exchanges[: at + 1]}
    whose = _whose(broken)
    return any(
        each.peer not in seen
        and each.succeeded
        and each.client_id == broken.client_id
        and _whose(each) == whose
        for each in exchanges[at + 1 :]
    )


def _whose(exchange: Exchange) -> str:
    return exchange.transactional_id or exchange.group or exchange.api


def _librdkafka(exchange: Exchange) -> tuple[int, int] | None:
    """(major, minor) of librdkafka in an ApiVersions request; None for another client or request.

    The client sends its version as 2.16.0, or as 2.16.1-rdkafka-2.16.0 in bindings.
    """
    name = str(exchange.request.get("client_software_name", ""))
    said = str(exchange.request.get("client_software_version", ""))
    if exchange.api != "ApiVersions" or not (name == "librdkafka" or "rdkafka-" in said):
        return None
    found = _LIBRDKAFKA.search(said)
    return (int(found[1]), int(found[2])) if found else None
