"""Odradek: a Kafka broker for testing exactly-once semantics, with fault injection and a clock that can be advanced.

    import odradek

    with odradek.Broker(topics=["orders:4"]) as broker:
        broker.faults.add("EndTxn", nth=2, do="lose-answer")

Names are loaded when they are first used: the command line imports this too.
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
    from odradek.remote import connect

__all__ = [
    "AssertionFailed",
    "Broker",
    "BrokerFailed",
    "ControlRefused",
    "ControlUnreachable",
    "FaultNotHit",
    "NotFound",
    "OdradekError",
    "RecordsHiddenWarning",
    "TransactionNotReached",
    "connect",
]

_HOMES = {"Broker": "odradek.broker", "connect": "odradek.remote"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'odradek' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "odradek.errors")), name)
