"""What a trace says against a job, before anything has failed: the diagnosis in words.

Each lint looks at the exchanges of one run and names what it saw. A lint alone is no verdict: it says why a run that lost or
doubled records did so, and warns in a run that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.certify.lints import consumers, positions, producers
from odradek.certify.lints.evidence import DOCS, Evidence, Lint
from odradek.certify.lints.producers import changing_ids

__all__ = ["DOCS", "Evidence", "Lint", "changing_ids", "lint"]

_LINTS: Final[tuple[Callable[[Evidence], Iterator[Lint]], ...]] = (
    producers.known_sinks,
    consumers.offsets_outside,
    consumers.read_uncommitted,
    producers.unawaited,
    producers.second_producer,
    producers.weak_producer,
    positions.no_rewind,
    positions.reported_early,
    producers.used_on,
    producers.shared_id,
    consumers.no_fencing,
    producers.short_time_out,
)
"""The likeliest reason first."""


def lint(evidence: Evidence) -> list[Lint]:
    """The first sight of each thing that a run's trace shows, the likeliest reason first."""
    return [found for each in _LINTS if (found := next(each(evidence), None)) is not None]
