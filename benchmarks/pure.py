"""What the pure form keeps to, where pip finds no C compiler: ``ODRADEK_PURE=1 python -m benchmarks.run --check``.

A quarter to a half above what it needed beside other work on the machine of the README. Where nothing stands here, the limit
of the measure holds. Calls of each request have bounds of their own, on any machine: `tests/broker/test_counts.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.figures import Figure
from protocol.core import compiled

LIMITS: Final = {
    "process start to first acknowledged record": 250,
    "resident memory, idle": 34,
    "CPU per small Produce, one connection": 45,
    "CPU per small idempotent Produce, one connection": 45,
    "CPU per small Produce, 64 connections": 45,
    "CPU per Produce of 1 MiB": 0.6,
    "CPU per Fetch that returns 1 MiB": 0.35,
    "commits per second, librdkafka, offsets in the transaction": 300,
    "CPU per append of a 300 B batch above a plain write": 6,
}
"""By the name of the figure, in its unit."""


def judged(figure: Figure) -> Figure:
    """The figure with the limit of the form that was measured."""
    if compiled is not None:
        return figure
    return replace(figure, limit=LIMITS.get(figure.name, figure.limit))
