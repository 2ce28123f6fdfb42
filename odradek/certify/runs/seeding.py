"""The input of a job: records in transactions that commit, and between them records of transactions that abort.

A reader with read_uncommitted takes both for input; one with read_committed gets the first only.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
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
    """Write them in their order: neighbours that commit in one transaction, those that abort too."""
    done = subprocess.run(
        command("tool", "seed", "-x", SEEDER, "-b", bootstrap),
        input="".join(f"{json.dumps(asdict(each))}\n" for each in seeds),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise OdradekError(f"the input cannot be written: {done.stderr.strip()}")
