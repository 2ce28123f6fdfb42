"""Odradek: a Kafka broker for testing exactly-once semantics, with fault injection and a clock that can be advanced.

    import odradek

    with odradek.Broker(topics=["orders:4"]) as broker:
        broker.faults.add("EndTxn", nth=2, do="lose-answer")

Each name is imported on first use, because the command line imports this package too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.broker import Broker
    from odradek.errors import (
        AssertionFailed,
        BrokerFailed,
        ControlRefused,
        ControlUnreachable,
        FaultNotHit,
        NotFound,
        OdradekError,
        RecordsHiddenWarning,
        TransactionNotReached,
    )
    from odradek.explanations import Explanation
    from odradek.nodes import Loss, Node, Nodes, Partition, Replica
    from odradek.remote import Clock, Faults, Remote, Rule, Trace, connect
    from odradek.snapshots import Snapshot
    from odradek.topics import Record
    from odradek.transactions import Timeline, Transaction, Transactions
    from odradek.words import Action, Domain, Isolation, NodeState, TransactionState

_NAMES = {
    "odradek.broker": ("Broker",),
    "odradek.errors": (
        "AssertionFailed",
        "BrokerFailed",
        "ControlRefused",
        "ControlUnreachable",
        "FaultNotHit",
        "NotFound",
        "OdradekError",
        "RecordsHiddenWarning",
        "TransactionNotReached",
    ),
    "odradek.explanations": ("Explanation",),
    "odradek.nodes": ("Loss", "Node", "Nodes", "Partition", "Replica"),
    "odradek.remote": ("Clock", "Faults", "Remote", "Rule", "Trace", "connect"),
    "odradek.snapshots": ("Snapshot",),
    "odradek.topics": ("Record",),
    "odradek.transactions": ("Timeline", "Transaction", "Transactions"),
    "odradek.words": ("Action", "Domain", "Isolation", "NodeState", "TransactionState"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "Action",
    "AssertionFailed",
    "Broker",
    "BrokerFailed",
    "Clock",
    "ControlRefused",
    "ControlUnreachable",
    "Domain",
    "Explanation",
    "FaultNotHit",
    "Faults",
    "Isolation",
    "Loss",
    "Node",
    "NodeState",
    "Nodes",
    "NotFound",
    "OdradekError",
    "Partition",
    "Record",
    "RecordsHiddenWarning",
    "Remote",
    "Replica",
    "Rule",
    "Snapshot",
    "Timeline",
    "Trace",
    "Transaction",
    "TransactionNotReached",
    "TransactionState",
    "Transactions",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'odradek' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
