"""The input of a job: records in transactions that commit, and between them records of transactions that abort.

A reader with read_uncommitted takes both for input; one with read_committed gets the first only.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from odradek._server import command
from odradek.certify.workload import Seed
from odradek.deadlines import stretched
from odradek.errors import OdradekError

SEEDER: Final = "odradek-certify-seed"
"""The transactional id that writes the input."""
RECORDS_PER_TRANSACTION: Final = 10
"""An aborted record follows so many committed ones."""
_TIMEOUT_S: Final = stretched(60.0)
_SEPARATOR: Final = "\x1f"
Batch = tuple[tuple[str, int | None, bool, bool], list[Seed]]


def with_aborted(seeds: Sequence[Seed], every: int = RECORDS_PER_TRANSACTION) -> Iterator[Seed]:
    """The same records, and behind so many of a topic an aborted copy of the last one.

    What a user's input contains of aborted records already is enough.
    """
    if any(each.aborted for each in seeds):
        yield from seeds
        return
    last: dict[str, int] = {}
    for seed in seeds:
        yield seed
        last[seed.topic] = last.get(seed.topic, 0) + 1
        if last[seed.topic] % every == 1:
            yield Seed(seed.topic, seed.value, seed.key, seed.partition, aborted=True)


def write(bootstrap: str, seeds: Iterable[Seed]) -> None:
    """Write them in their order: those with the same topic, partition and fate in one transaction."""
    for (topic, partition, aborted, has_key), batch in _batches(seeds):
        words = [topic, "-b", bootstrap, "-x", SEEDER]
        words += ["-p", str(partition)] if partition is not None else []
        words += ["--abort"] if aborted else []
        words += ["-K", _SEPARATOR] if has_key else []
        lines = "".join(f"{f'{each.key}{_SEPARATOR}' if has_key else ''}{each.value}\n" for each in batch)
        done = subprocess.run(
            command("tool", "produce", *words),
            input=lines,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode:
            raise OdradekError(f"the input of {topic} cannot be written: {done.stderr.strip()}")


def _batches(seeds: Iterable[Seed]) -> Iterator[Batch]:
    for fate, batch in groupby(
        seeds, lambda each: (each.topic, each.partition, each.aborted, each.key is not None)
    ):
        yield fate, list(batch)
