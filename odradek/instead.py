"""List the requests that arrived instead of those that a rule should have matched.

The list is the end of the error message for a rule without hits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.control_client import ControlClient
from odradek.errors import OdradekError
from odradek.nearest import did_you_mean, listed

REQUESTS_MAX: Final = 1000
_IN_AN_EXCHANGE: Final = ("client_id", "node", "listener", "peer", "principal", "connection")


def came_instead(client: ControlClient, rule: Mapping[str, Any]) -> str:
    """Return the end of the error message for a rule without hits; empty if there is nothing to add.

    It lists the requests in the trace with the rule's API: their number, and their values of the fields that the
    rule matches. If the trace is off, it lists the known transactional ids, provided that no coordinator knows the
    id in the rule. ``rule`` is the rule's JSON form.
    """
    on, match = rule.get("on"), rule.get("match", {})
    try:
        if on and client.get("/v1/trace", {"limit": 1, "bodies": False})["status"]["running"]:
            query = {"api": on, "bodies": False, "limit": REQUESTS_MAX}
            return _in_the_trace(str(on), match, client.get("/v1/trace", query)["exchanges"])
        known = [each["transactional_id"] for each in client.get("/v1/transactions")["transactions"]]
    except OdradekError:
        # For instance, a rule at a point: the trace contains only requests, and the error message itself contains the number
        # of matches.
        return ""
    wanted = str(match.get("transactional_id", "*"))
    if "*" in wanted or wanted in known:
        return ""
    return f"; no coordinator knows {wanted}, known: {listed(known)}{did_you_mean(wanted, known)}"


def _in_the_trace(on: str, match: Mapping[str, object], exchanges: list[dict[str, Any]]) -> str:
    if not exchanges:
        return f"; the trace has no {on}"
    count = f"{REQUESTS_MAX} or more" if len(exchanges) == REQUESTS_MAX else str(len(exchanges))
    fields = [name for name in match if name in _IN_AN_EXCHANGE]
    said = {name: _distinct(each[name] for each in exchanges) for name in fields}
    ids = _distinct(each["transactional_id"] for one in exchanges for each in one["transactions"])
    if ids and ("transactional_id" in match or not said):
        said["transactional_id"] = ids
    text = "".join(f", {name} {listed(values)}" for name, values in said.items())
    wanted = str(match.get("transactional_id", "*"))
    return f"; the trace has {count} {on}{text}" + ("" if "*" in wanted else did_you_mean(wanted, ids))


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(each) for each in values if each is not None))
