"""Lints: problems of a job that are visible in its trace before anything has failed.

Each lint examines the exchanges of one run. A lint alone is a warning, not a failure. `causes` decides whether a lint
explains lost or duplicated records: only if its exchanges concern those records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from odradek.certify.lints import (
    consumers,
    deliveries,
    positions,
    producers,
    progress,
    services,
    share_groups,
)
from odradek.certify.lints.both_ends import BothEnds
from odradek.certify.lints.evidence import DOCS, Evidence, Lint
from odradek.certify.lints.producers import changing_ids

__all__ = ["DOCS", "Evidence", "Lint", "changing", "changing_ids", "lint"]

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
    share_groups.share_read_uncommitted,
    share_groups.never_renews,
    share_groups.released_to_limit,
    progress.revoked_batch,
    progress.stale_batch,
    producers.used_on,
    producers.shared_id,
    consumers.no_fencing,
    producers.short_time_out,
)
"""The lints, the likeliest cause of a failure first."""


def changing(one: Evidence, two: Evidence) -> list[Lint]:
    """Lints that only a comparison of two runs without faults shows: ids and keys that change with each start."""
    keys = services.changing_keys(BothEnds(one), BothEnds(two))
    return [*changing_ids(one, two), *islice(keys, 1)]


def lint(evidence: Evidence) -> list[Lint]:
    """The first occurrence of each lint in a run's trace, the likeliest cause of a failure first."""
    found = [found for each in _LINTS if (found := next(each(evidence), None)) is not None]
    elsewhere = services.lints(evidence)
    names = {each.name for each in elsewhere}
    return [*elsewhere, *(each for each in found if each.name not in names)]
