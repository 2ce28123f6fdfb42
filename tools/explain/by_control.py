"""Queries of the cluster's control port: its explanations, or if it has none, its rules and its trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import ClusterContext, FaultRule, HeldByRule, Refusal
from odradek.deadlines import stretched
from odradek.errors import ControlRefused, ControlUnreachable, OdradekError
from odradek.remote import CONTROL_VARIABLE, PORT_VARIABLE, Remote, connect
from tools.client.connection import Address, parse_bootstrap
from tools.client.errors import ToolError, Unreachable
from tools.client.producing import now_ms
from tools.explain.asking import Asking

CONTROL_S: Final = stretched(0.8)
ENTRIES: Final = 1000
"""Number of the latest exchanges of the trace that are examined."""
_LOCAL: Final = ("127.0.0.1", "::1")


class Control:
    """A client of the control port of this cluster. Each call has its own short timeout."""

    def __init__(self, remote: Remote, cluster: Mapping[str, Any]) -> None:
        self._client = remote.client
        self._cluster = cluster

    def explanations(self, query: Mapping[str, object]) -> list[Explanation] | None:
        """``GET /v1/explain``; None if the port has no such route.

        Raises ``ToolError`` for an unknown topic or partition.
        """
        try:
            found = self._client.get("/v1/explain", query, CONTROL_S)["explanations"]
        except OdradekError as error:
            unknown = "there is no topic", "there is no share group", f"{query.get('topic')} has no"
            if "topic" in query and str(error).startswith(unknown):
                raise ToolError(str(error)) from None
            return None
        return [Explanation(each["subject"], _cause(each["cause"]), tuple(each["lines"])) for each in found]

    def ages_ms(self) -> dict[tuple[str, int | None], int | None]:
        """(transactional id, start in ms) -> age in ms of the open transaction, by the broker's clock."""
        found = self._get("/v1/transactions").get("transactions", ())
        return {(each["transactional_id"], each.get("start_ms")): each.get("open_ms") for each in found}

    def context(self) -> ClusterContext:
        """Fault rules with the requests that each of them holds, states of the nodes, rejected requests in the trace."""
        rules = self._get("/v1/faults").get("faults", ())
        trace = self._get("/v1/trace", {"limit": ENTRIES})
        return ClusterContext(
            nodes={each["node"]: each["state"] for each in self._cluster.get("nodes", ()) if "state" in each}
            or None,
            rules=tuple(
                FaultRule(rule=each["id"], text=each["text"], hits=each["hits"], spent=each["spent"])
                for each in rules
            ),
            held=tuple(_held(rule["id"], each) for rule in rules for each in rule["held"]),
            trace_runs=trace.get("status", {}).get("running"),
            refusals=folded_refusals(trace.get("exchanges", ())),
        )

    def _get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Response to a GET of ``path``; an empty object if the port has no such route."""
        try:
            return self._client.get(path, query, CONTROL_S)
        except OdradekError:
            return {}


def find_control(asking: Asking) -> Control | None:
    """The control port of the environment variable, if it belongs to this cluster; else None.

    Raises ``ToolError`` if it rejects the call, for instance because the token is missing.
    """
    if not (os.environ.get(CONTROL_VARIABLE) or os.environ.get(PORT_VARIABLE)):
        return None
    try:
        remote = connect()
        view = remote.client.get("/v1/views/cluster", None, CONTROL_S)  # a proxy has this route too
    except ControlRefused as error:
        raise ToolError(str(error)) from None
    except OdradekError as error:
        if not isinstance(error, ControlUnreachable):
            asking.note(f"The control port: {error}.")
        return None
    return Control(remote, view) if _is_same(asking, view) else None


def _is_same(asking: Asking, view: Mapping[str, Any]) -> bool:
    """Whether the control port belongs to this cluster: by cluster id, or by address if no node responds."""
    if asking.cluster.bootstrap == view["bootstrap_servers"]:
        return True
    try:
        asking.metadata()
    except Unreachable:
        return bool(_addresses(asking.cluster.bootstrap) & _addresses(view["bootstrap_servers"]))
    return bool(asking.cluster.cluster_id == view["cluster_id"])


def _addresses(bootstrap: str) -> set[Address]:
    return {
        ("localhost" if host in _LOCAL else host, port)
        for host, port in (parse_bootstrap(bootstrap) if bootstrap else ())
    }


def _cause(name: str) -> Cause:
    """The cause with this name; ``UNKNOWN`` for a name that only a newer broker has."""
    try:
        return Cause(name)
    except ValueError:
        return Cause.UNKNOWN


def _held(rule: int, each: Mapping[str, Any]) -> HeldByRule:
    return HeldByRule(
        rule=rule,
        at=each["at"],
        node=each["node"],
        for_ms=max(0, now_ms() - each["since_ms"]),
        client_id=each.get("client_id"),
        transactional_id=each.get("transactional_id"),
        group=each.get("group"),
        partitions=tuple(each.get("partitions") or ()),
    )


# -- the trace --------------------------------------------------------------------------------------------------


def folded_refusals(exchanges: Iterable[Mapping[str, Any]]) -> tuple[Refusal, ...]:
    """The errors in responses, the latest first; equal ones are combined, with their count."""
    counts: dict[tuple[object, ...], int] = {}
    newest: dict[tuple[object, ...], Refusal] = {}
    for entry in reversed(list(exchanges)):
        for error, partitions in _errors(entry.get("answer")).items():
            refusal = _refusal(entry, error, tuple(partitions))
            of = refusal.transactional_id, refusal.group, refusal.producer_id, refusal.partitions[:1]
            key = (refusal.api, error, *of)
            counts[key] = counts.get(key, 0) + 1
            newest.setdefault(key, refusal)
    return tuple(replace(each, count=counts[key]) for key, each in newest.items())


def _refusal(entry: Mapping[str, Any], error: str, partitions: tuple[str, ...]) -> Refusal:
    facts: Mapping[str, Any] = next(iter(entry.get("transactions") or ()), {})
    request = entry.get("request") or {}
    at_ms = entry.get("answered_ms") or entry["arrived_ms"]
    return Refusal(
        api=entry["api"],
        error=error,
        count=1,
        last_ms=max(0, now_ms() - at_ms),
        node=entry["node"],
        client_id=entry.get("client_id"),
        principal=entry.get("principal"),
        rule=entry.get("rule"),
        transactional_id=facts.get("transactional_id"),
        group=request.get("group_id") if isinstance(request, Mapping) else None,
        producer_id=facts.get("producer_id"),
        producer_epoch=facts.get("producer_epoch"),
        partitions=partitions,
        line=entry.get("line", ""),
    )


def _errors(answer: object) -> dict[str, list[str]]:
    """The names of all error codes in a response except NONE, with their partitions."""
    found: dict[str, list[str]] = {}
    for topic, error, index in _each_error(answer, None):
        names = found.setdefault(error, [])
        if topic is not None and index is not None:
            names.append(f"{topic}-{index}")
    return found


def _each_error(answer: object, topic: str | None) -> Iterator[tuple[str | None, str, int | None]]:
    if isinstance(answer, Mapping):
        name = answer.get("name") or answer.get("topic") or answer.get("topic_name")
        topic = name if isinstance(name, str) else topic
        index = answer.get("partition_index", answer.get("index", answer.get("partition")))
        for key, value in answer.items():
            if key in ("error", "partition_error") and isinstance(value, str):
                if value != "NONE":
                    yield topic, value, index if isinstance(index, int) else None
            else:
                yield from _each_error(value, topic)
    elif isinstance(answer, list):
        for each in answer:
            yield from _each_error(each, topic)
