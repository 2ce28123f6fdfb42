"""The timeline of both ends of a run, as text: the requests that decide something, the faults, the acts of the certifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from odradek.certify import share_groups
from odradek.certify.exchanges import Exchange, batches
from odradek.certify.lints.both_ends import BothEnds, clock, label
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.failures import hits
from odradek.certify.plans.at_services import Role, role
from odradek.certify.plans.plan import Injection, Plan

KAFKA: Final = frozenset(
    {"InitProducerId", "Produce", "TxnOffsetCommit", "OffsetCommit", "EndTxn", share_groups.ACKNOWLEDGE}
)
_COMMITS: Final = frozenset({"Produce", "OffsetCommit", "EndTxn", share_groups.ACKNOWLEDGE})
"""APIs that make something permanent, or mark input as processed."""
_CHARS_MAX: Final = 120
_LINES_MAX: Final = 400
_ANSWERS: Final = {"answered": "ok", "answer_lost": "the response is lost", "unanswered": "no response"}

Noted = tuple[int, str]
"""Time in us since the epoch, and what the certifier did then."""


def title(exchanges: Iterable[Exchange]) -> str:
    """``Kafka and postgres``; empty if the run used Kafka alone."""
    names = sorted({each.service for each in exchanges if each.service})
    return " and ".join(["Kafka", *names]) if names else ""


def timeline(exchanges: Sequence[Exchange], plan: Plan, noted: Iterable[Noted] = ()) -> str:
    """One line for each decisive request of both ends, by arrival, with the faults and the acts of the certifier."""
    ends = BothEnds(Evidence(exchanges, frozenset(), frozenset()))
    struck = hits(exchanges, plan)
    lines = [
        (each.arrived_us, number, line)
        for number, each in enumerate(exchanges)
        if number in struck or is_shown(each)
        for line in _lines(ends, number, struck.get(number))
    ]
    lines += [(at_us, len(exchanges), f"{clock(at_us)}  {'':34}{said}") for at_us, said in noted]
    shown = [line for _, _, line in sorted(lines, key=lambda each: each[:2])]
    if len(shown) > _LINES_MAX:
        shown = [*shown[:_LINES_MAX], f"{len(shown) - _LINES_MAX} more"]
    return "\n".join([title(exchanges), f"{'TIME (UTC)':14}{'END':10}{'CONNECTION':24}WHAT", *shown])


def is_shown(exchange: Exchange) -> bool:
    """Whether the request changes something, or returns records of a topic."""
    if not exchange.service:
        return exchange.api in KAFKA or _records(exchange) > 0
    is_moment = bool(exchange.request.get("is_moment", True))
    return is_moment and (bool(exchange.request.get("is_write")) or _role(exchange) is not Role.READ)


def is_decisive(exchange: Exchange) -> bool:
    """Whether the request makes something permanent at its end: a COMMIT, a POST, a Produce, committed offsets."""
    if not exchange.service:
        return exchange.api in _COMMITS
    return exchange.request.get("is_moment", True) and _role(exchange) in (
        Role.COMMIT,
        Role.PREPARE,
        Role.CONNECTION,
    )


def _role(exchange: Exchange) -> Role:
    return role(exchange.api, str(exchange.request.get("phase") or ""))


def guilty_pair(exchanges: Sequence[Exchange], plan: Plan) -> str:
    """The decisive requests of both ends between which the last fault of the plan fell; empty if there are none.

    The first one is the last that was handled before the fault took effect, the second the next one at another end, or of
    another kind.
    """
    struck = hits(exchanges, plan)
    if not struck or not title(exchanges):
        return ""
    at = max(struck)
    ends = BothEnds(Evidence(exchanges, frozenset(), frozenset()))
    decisive = [number for number, each in enumerate(exchanges) if is_decisive(each)]
    handled = exchanges[at].outcome in ("answered", "answer_lost") and not exchanges[at].errors
    before = [each for each in decisive if each < at or (each == at and handled)]
    if not before:
        return ""
    first = before[-1]
    after = [
        each
        for each in decisive
        if each > first and each >= at and label(exchanges[each]) != label(exchanges[first])
    ]
    return ends.pair(first, min(after, default=None), "nothing of another kind")


def _lines(ends: BothEnds, number: int, struck: Injection | None) -> Iterator[str]:
    each = ends.evidence.exchanges[number]
    name = each.service or "Kafka"
    what = ends.named(number).removeprefix(f"{each.service} ").rpartition(" at ")[0]
    said = f"{what} {_details(each)}".strip()
    result = ", ".join(dict.fromkeys(each.errors)) or _ANSWERS.get(
        each.outcome, each.outcome.replace("_", " ")
    )
    yield f"{clock(each.arrived_us)}  {name:10}{each.peer:24}{said[:_CHARS_MAX]} -> {_result(each, result)}"
    if struck is not None:
        yield f"{clock(each.arrived_us)}  {'':10}{'':24}fault {struck}"


def _result(exchange: Exchange, result: str) -> str:
    answer = exchange.answer or {}
    if not exchange.service or exchange.errors:
        return result
    if answer.get("status"):
        return f"{answer['status']}" + (f", {result}" if result != "ok" else "")
    tag = str(answer.get("tag") or "")
    rows = answer.get("rows")
    is_odd = tag.startswith("ROLLBACK") and exchange.request.get("kind") == "COMMIT"
    found = ["ROLLBACK"] if is_odd else []
    is_about_rows = isinstance(rows, int) and exchange.request.get("tables")
    found += [f"{rows} rows" if rows != 1 else "1 row"] if is_about_rows else []
    return ", ".join([result, *found])


def _details(exchange: Exchange) -> str:
    if "sql" in exchange.request:
        parameters = exchange.request.get("parameters") or ()
        return (
            "[" + ", ".join("NULL" if each is None else str(each) for each in parameters) + "]"
            if parameters
            else ""
        )
    if "method" in exchange.request:
        key = exchange.request.get("idempotency_key")
        return " ".join(filter(None, [f"key {key}" if key else "", str(exchange.request.get("body") or "")]))
    if exchange.api == "Fetch":
        return f"{_records(exchange)} records"
    if exchange.api == "Produce":
        count = sum(batch.get("count", 0) for _, _, batch in batches(exchange))
        return f"{count} records" + (f" of {exchange.transactional_id}" if exchange.transactional_id else "")
    if exchange.api == "EndTxn":
        return f"{exchange.transactional_id} {'commit' if exchange.request.get('committed') else 'abort'}"
    return _offsets(exchange)


def _offsets(exchange: Exchange) -> str:
    return ", ".join(
        f"{each['partition_index']}@{each['committed_offset']}"
        for topic in exchange.request.get("topics") or ()
        for each in topic.get("partitions") or ()
        if "committed_offset" in each
    )


def _records(exchange: Exchange) -> int:
    """Number of records that a Fetch or ShareFetch returned."""
    if exchange.api not in ("Fetch", share_groups.FETCH):
        return 0
    return sum(
        batch.get("count", 0)
        for topic in (exchange.answer or {}).get("responses") or ()
        for partition in topic.get("partitions") or ()
        for batch in (partition.get("records") or {}).get("batches") or ()
        if not batch.get("control")
    )
