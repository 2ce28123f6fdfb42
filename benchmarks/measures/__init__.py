"""One module per measure; each has ``measure(run) -> Iterator[Figure]``. The order is that of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from benchmarks.figures import Figure, Run

NAMES: Final = (
    "start",
    "memory",
    "control_port",
    "produce_large",
    "fetch_large",
    "produce_small",
    "transactions",
    "groups",
    "share_locks",
    "reset",
    "snapshot",
    "log_append",
    "log_read",
    "log_lookup",
    "log_recovery",
    "many_partitions",
    "many_partitions_live",
    "many_ids",
    "scale",
    "flood",
    "viewers",
    "proxied",
    "pauses",
    "hostile",
    "hostile_environment",
)

Measure = Callable[[Run], Iterator[Figure]]


def load(name: str) -> Measure:
    measure: Measure = import_module(f"benchmarks.measures.{name}").measure
    return measure
