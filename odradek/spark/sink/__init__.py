"""``format("odradek.exactly_once")``: a Spark sink that commits each micro-batch exactly once (docs/spark/sink.md).

Names are imported when they are first used, because the process that plans a batch runs for only about a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.sink.errors import DecisionMismatch, MayBeLost, NotDecided, OutcomeUnknown, SinkError
    from odradek.spark.sink.inquiry import (
        Decision,
        Resolution,
        SinkTransaction,
        Status,
        progress,
        resolve,
        status,
    )
    from odradek.spark.sink.listener import BatchProgress, ExactlyOnceListener
    from odradek.spark.sink.source import ExactlyOnce

__all__ = [
    "BatchProgress",
    "Decision",
    "DecisionMismatch",
    "ExactlyOnce",
    "ExactlyOnceListener",
    "MayBeLost",
    "NotDecided",
    "OutcomeUnknown",
    "Resolution",
    "SinkError",
    "SinkTransaction",
    "Status",
    "progress",
    "resolve",
    "status",
]

_ROOMS = {
    "BatchProgress": "listener",
    "Decision": "inquiry",
    "ExactlyOnce": "source",
    "ExactlyOnceListener": "listener",
    "Resolution": "inquiry",
    "SinkTransaction": "inquiry",
    "Status": "inquiry",
    "progress": "inquiry",
    "resolve": "inquiry",
    "status": "inquiry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'odradek.spark.sink' has no attribute {name!r}")
    found = getattr(import_module(f"odradek.spark.sink.{_ROOMS.get(name, 'errors')}"), name)
    globals()[name] = found
    return found
