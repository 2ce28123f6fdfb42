"""Results of soak runs in a file, one line of JSON for each run, so that the next soak continues with the next seed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

RIGHT = "right"


@dataclass(frozen=True)
class KeptRun:
    seed: int
    date: str
    seconds: float
    verdict: str
    """"right", or the soak's text about what was wrong."""


R = TypeVar("R", bound=KeptRun)


def load(path: Path, kind: type[R]) -> list[R]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [kind(**json.loads(line)) for line in lines]


def keep(path: Path, run: KeptRun) -> None:
    with path.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def next_seed(runs: Iterable[KeptRun], first: int) -> int:
    """The seed after the last seed of the runs, or ``first`` without any run."""
    return max((run.seed + 1 for run in runs), default=first)
