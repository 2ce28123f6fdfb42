"""What a trace says against a job, before anything has failed: the diagnosis in words.

Each lint looks at the exchanges of one run and names what it saw. A lint alone is no verdict: in a run that did no harm it
warns. Why another one lost or duplicated records, `causes` says: a lint is the reason only where it has to do with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.certify.lints import consumers, deliveries, positions, producers, progress
from odradek.certify.lints.evidence import DOCS, Evidence, Lint
from odradek.certify.lints.producers import changing_ids

__all__ = ["DOCS", "Evidence", "Lint", "changing_ids", "lint"]

_LINTS: Final[tuple[Callable[[Evidence], Iterator[Lint]], ...]] = (
    deliveries.same_batch,
    deliveries.delivery_ignored,
    deliveries.abort_missing,
    producers.known_sinks,
    consumers.offsets_outside,
    consumers.read_uncommitted,
    producers.unawaited,
    producers.second_producer,
    producers.weak_producer,
    positions.no_rewind,
    positions.reported_early,
    deliveries.outputs_without_positions,
    progress.position_back,
    progress.revoked_batch,
    progress.stale_batch,
    producers.used_on,
    producers.shared_id,
    consumers.no_fencing,
    producers.short_time_out,
)
"""The likeliest reason first."""


def lint(evidence: Evidence) -> list[Lint]:
    """The first sight of each thing that a run's trace shows, the likeliest reason first."""
    return [found for each in _LINTS if (found := next(each(evidence), None)) is not None]
