"""Tells on stderr what a command waits for: after 2 s, 10 s, a minute, and each five minutes; and at Ctrl-C."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from odradek.errors import OdradekError
from odradek.pending import Pending, Step, watched
from odradek.printable import printable
from odradek.remote import CONTROL_VARIABLE, PORT_VARIABLE, Remote, connect

CLIENT_ID: Final = "odradek"
"""Of the commands' requests."""
LOOK_S: Final = 0.5
"""How long the control port may take for what holds a request."""


@contextmanager
def telling_waits(remote: Remote | None = None) -> Iterator[None]:
    """While a command runs; ``remote``: the control port that it speaks to."""
    pending, ended, lock = Pending(), threading.Event(), threading.Lock()
    teller = threading.Thread(target=_tell, args=(pending, ended, lock, remote), daemon=True)
    with watched(pending):
        teller.start()
        try:
            yield
        except KeyboardInterrupt:
            if pending.interrupted:
                click.echo(f"\ninterrupted after {pending.interrupted}", err=True)
            raise
        finally:
            with lock:
                ended.set()


def _tell(pending: Pending, ended: threading.Event, lock: threading.Lock, remote: Remote | None) -> None:
    # It sleeps until there can be a notice.
    while not ended.wait(pending.due_in_s(time.monotonic())):
        if not pending.is_due(time.monotonic()):
            continue
        pending.told += 1
        cause = _looked_up(pending, remote)
        with lock, suppress(OSError, ValueError):
            # It may have come to its end meanwhile.
            if pending.steps and not ended.is_set():
                text = pending.text(time.monotonic())
                click.echo(printable(f"{text}; {cause}" if cause else text), err=True)


def _looked_up(pending: Pending, remote: Remote | None) -> str:
    """The cause, as far as a control port at hand knows it."""
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
    steps = [each for each in list(pending.steps) if each.where]
    if any(each.where == client.url for each in steps):
        return _that_hold(rules)
    return cause_of(steps[-1] if steps else None, pending.names, pending.refusal, nodes, rules)


def cause_of(
    step: Step | None,
    names: Container[str],
    refusal: str,
    nodes: Iterable[Mapping[str, Any]],
    rules: Iterable[Mapping[str, Any]],
) -> str:
    """What the broker's rules and nodes have to do with a wait, as its control port shows them; empty if nothing.

    A rule that holds requests like the one of ``step``, or that holds a step of one of the ids ``names``, or that gives the
    error of ``refusal``; a node that does not run.
    """
    for rule in rules:
        text = f"rule {rule['id']} ({rule['text']})"
        release = f"`odradek fault release {rule['id']}` lets it happen"
        for held in rule["held"]:
            if step is not None and held["at"] == step.what and held["client_id"] == CLIENT_ID:
                return f"{text} holds such a request: {release}"
            for name in (held["transactional_id"], held["group"]):
                if name is not None and name in names:
                    return f"{text} holds {held['at']} of {name}: {release}"
        code = rule["rule"].get("action", {}).get("code")
        if refusal and code and rule["hits"] and f": {code}" in refusal:
            return f"{text} gives this error, {rule['hits']} times so far"
    away = [each for each in nodes if each["state"] != "running"]
    at = [each for each in away if step is not None and step.where in _addresses(each)]
    return "; ".join(f"node {each['node_id']} is {each['state']}" for each in at or away)


def _addresses(node: Mapping[str, Any]) -> set[str]:
    return {listener[name] for listener in node["listeners"] for name in ("address", "advertised")}


def _that_hold(rules: Iterable[Mapping[str, Any]]) -> str:
    """For a call of the control port, which may wait for what a rule holds."""
    holding = [
        f"rule {each['id']} ({each['text']}) holds {len(each['held'])}" for each in rules if each["held"]
    ]
    return "; ".join(holding)
