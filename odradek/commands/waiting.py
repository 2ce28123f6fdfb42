"""Print to stderr what a command is waiting for: after 2 s, 10 s, a minute, then every five minutes, and at Ctrl-C."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from odradek.control_client import ControlClient
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.pending import Kind, Pending, Step, watched
from odradek.printable import printable
from odradek.remote import CONTROL_VARIABLE, PORT_VARIABLE, Remote, connect

CLIENT_ID: Final = "odradek"
"""Client id of the commands' own requests."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
_NOTHING_WRONG: Final = ("nothing", "unknown", "unknown-group", "unknown-id", "group-empty", "lag")
"""Causes in explanations that do not make a request wait."""
LOOK_S: Final = stretched(0.5)
"""Timeout of each query for the cause of a wait, in seconds."""


@contextmanager
def telling_waits(remote: Remote | None = None) -> Iterator[None]:
    """Context manager around a command that prints what the command waits for.

    ``remote`` is the control port that the command uses; None to use the configured one, if any.
    """
    pending, ended, lock = Pending(), threading.Event(), threading.Lock()
    teller = threading.Thread(target=_tell, args=(pending, ended, lock, remote), daemon=True)
    with watched(pending):
        teller.start()
        try:
            yield
        except KeyboardInterrupt:
            if pending.interrupted:
                click.echo(f"\ninterrupted after {printable(pending.interrupted)}", err=True)
            raise
        finally:
            with lock:
                ended.set()


def _tell(pending: Pending, ended: threading.Event, lock: threading.Lock, remote: Remote | None) -> None:
    # The thread sleeps until the next notice can be due.
    while not ended.wait(pending.due_in_s(time.monotonic())):
        now, under_way = time.monotonic(), pending.steps[:1]
        if not under_way or not pending.is_due(now):
            continue
        pending.notices += 1
        text, cause = pending.text(now), _looked_up(pending, remote)
        with lock, suppress(OSError, ValueError):
            # The wait may have ended in the meantime.
            if pending.steps[:1] == under_way and not ended.is_set():
                click.echo(printable(f"{text}; {cause}" if cause else text), err=True)


def _looked_up(pending: Pending, remote: Remote | None) -> str:
    """The cause of the wait, if a control port is configured and shows it; else an empty string."""
    try:
        if remote is None:
            if not (os.environ.get(CONTROL_VARIABLE) or os.environ.get(PORT_VARIABLE)):
                return ""
            remote = connect()
        client = remote.client
        if pending.progress is not None:
            return pending.progress() or ""
        nodes = client.get("/v1/cluster", timeout_s=LOOK_S)["nodes"]
        rules = client.get("/v1/faults", timeout_s=LOOK_S)["faults"]
    except OdradekError:
        return ""
    if pending.where == client.url:
        return _that_hold(rules)
    step = next((each for each in reversed(list(pending.steps)) if each.where), None)
    # The configured control port may belong to another cluster.
    if not any(same_port(pending.where, address) for each in nodes for address in _addresses(each)):
        return ""
    cause = cause_of(step, pending.names, pending.refusal, nodes, rules)
    return cause or (_explained(client, dict(pending.names)) if pending.refusal else "")


def _explained(client: ControlClient, names: Mapping[str, Kind]) -> str:
    """The broker's explanation for the first of the groups and transactional ids that has a problem; empty if none has."""
    with suppress(OdradekError):
        for name, kind in names.items():
            found = client.get("/v1/explain", {kind: name}, timeout_s=LOOK_S)["explanations"]
            if cause := explained_cause(found):
                return cause
    return ""


def explained_cause(explanations: Iterable[Mapping[str, Any]]) -> str:
    """The first line of the first explanation with a problem; empty if there is none.

    If a rule causes the problem, the command that releases the rule follows.
    """
    for each in explanations:
        if each["cause"] in _NOTHING_WRONG:
            continue
        first, *rest = each["lines"]
        if first.startswith(("Rule ", "The ", "Node ")):
            first = first[0].lower() + first[1:]
        release = [line for line in rest[:1] if line.startswith("Release it: ")]
        return " ".join([first, *release]).rstrip(".")
    return ""


def cause_of(
    step: Step | None,
    names: Collection[str],
    refusal: str,
    nodes: Iterable[Mapping[str, Any]],
    rules: Iterable[Mapping[str, Any]],
) -> str:
    """Return the cause of a wait, found in the rules and nodes of the control port; empty if there is none.

    A cause is a rule that holds the request of ``step``, or any request or point of the groups and transactional
    ids ``names``; a rule that returns the error ``refusal``; or a node that does not run.
    """
    for rule in rules:
        for held in rule["held"]:
            if step is not None and held["at"] == step.what and held["client_id"] == CLIENT_ID:
                return f"{_text(rule)} holds such a request; {_release(rule)}"
        code = rule["rule"].get("action", {}).get("code")
        if refusal and code and rule["hits"] and f": {code}" in refusal:
            return f"{_text(rule)} returns this error, {rule['hits']} times so far"
    if found := rule_that_holds(names, rules):
        return found
    away = [each for each in nodes if each["state"] != "running"]
    at = [
        each
        for each in away
        if step is not None and any(same_port(step.where, own) for own in _addresses(each))
    ]
    return "; ".join(f"node {each['node_id']} is {each['state']}" for each in at or away)


def rule_that_holds(
    names: Collection[str], rules: Iterable[Mapping[str, Any]], partitions: Collection[str] = ()
) -> str:
    """Return a sentence about the first rule that holds a request or a point of one of these ids; else empty.

    ``names`` has groups and transactional ids. ``partitions`` wait for a marker: the request with the marker
    (WriteTxnMarkers) has no transactional id.
    """
    for rule in rules:
        for held in rule["held"]:
            if held["at"] == "WriteTxnMarkers" and (
                here := [at for at in held["partitions"] if at in partitions]
            ):
                return f"{_text(rule)} holds {held['at']} for {' '.join(here)}; {_release(rule)}"
            for name in (held["transactional_id"], held["group"]):
                if name is not None and name in names:
                    return f"{_text(rule)} holds {held['at']} of {name}; {_release(rule)}"
    return ""


def _text(rule: Mapping[str, Any]) -> str:
    return f"rule {rule['id']} ({rule['text']})"


def _release(rule: Mapping[str, Any]) -> str:
    return f"`odradek fault release {rule['id']}` releases it"


def _addresses(node: Mapping[str, Any]) -> set[str]:
    return {listener[name] for listener in node["listeners"] for name in ("address", "advertised")}


def same_port(one: str, other: str) -> bool:
    """Whether two addresses have the same port and may both belong to this machine."""
    hosts = [each.rpartition(":")[0].strip("[]") for each in (one, other)]
    ports = [each.rpartition(":")[2] for each in (one, other)]
    return ports[0] == ports[1] and (hosts[0] == hosts[1] or all(host in _LOCAL for host in hosts))


def _that_hold(rules: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence about the rules that hold requests or steps; empty if there are none.

    A call of the control port may wait for the release of these.
    """
    return "; ".join(f"{_text(each)} holds {len(each['held'])}" for each in rules if each["held"])
