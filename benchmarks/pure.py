"""Limits for the broker in pure Python, without a C compiler: ``ODRADEK_PURE=1 python -m benchmarks.run --check``.

Each limit is 25 to 50 % above the figure of the machine in README.md while that machine also did other work. A measure
that is not listed here has the limit of the compiled form. `tests/broker/test_counts.py` bounds the calls of each
request, on any machine.
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
"""Limits by the name of the figure, in the figure's unit."""


def judged(figure: Figure) -> Figure:
    """The figure with the limit of the form (pure or compiled) that was measured."""
    if compiled is not None:
        return figure
    return replace(figure, limit=LIMITS.get(figure.name, figure.limit))
