"""Write the input of a job: records in committed transactions, and between them records of aborted ones.

A read_uncommitted consumer gets all records, a read_committed consumer only the committed ones.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from odradek._server import command
from odradek.certify.workload import Seed
from odradek.deadlines import stretched
from odradek.errors import OdradekError

SEEDER: Final = "odradek-certify-seed"
"""The transactional id of the producer of the input."""
RECORDS_PER_TRANSACTION: Final = 10
"""Number of committed records for each aborted record."""
_TIMEOUT_S: Final = stretched(60.0)


def with_aborted(seeds: Sequence[Seed], every: int = RECORDS_PER_TRANSACTION) -> Iterator[Seed]:
    """Insert aborted records: after every ``every`` records of a topic, an aborted copy of the last of them.

    Does nothing if the user's input already contains aborted records.
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
    """Write the records in order.

    Consecutive committed records are in one transaction, and so are consecutive aborted records.
    """
    lines = "".join(f"{json.dumps(asdict(each))}\n" for each in seeds)
    _run("the input cannot be written", "seed", "-x", SEEDER, "-b", bootstrap, input=lines)


def configure(bootstrap: str, configs: Mapping[str, Mapping[str, str]], *, is_deleted: bool = False) -> None:
    """Set the settings (group -> name -> value) of groups, or with ``is_deleted`` reset them to their defaults."""
    for group, values in configs.items():
        options = [
            ("--delete", name) if is_deleted else ("--set", f"{name}={values[name]}") for name in values
        ]
        words = [word for option in options for word in option]
        _run("--group-config", "group", "config", group, *words, "-b", bootstrap)


def _run(what: str, *words: str, input: str = "") -> None:
    """Run an `odradek` command. Raises ``OdradekError`` that begins with ``what`` if it fails."""
    done = subprocess.run(
        command("tool", *words), input=input, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    if done.returncode:
        raise OdradekError(f"{what}: {done.stderr.strip()}")
