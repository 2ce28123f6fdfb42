"""Chaos runs of one minute each with consecutive seeds, and the stored results of earlier runs.

    python -m tests.chaos.soak --minutes 60                 # continue after the last seed in the results
    python -m tests.chaos.soak --minutes 0                  # show the results so far
    python -m tests.chaos.soak --minutes 20 --results /tmp/r.jsonl --first 5000

Each run appends a line of JSON to the results: seed, date, seconds, verdict, summary or violations. The exit code is 0 if
all runs of this call passed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.plan import draw
from tests.chaos.run import ChaosFailed, run
from tests.chaos.test_chaos import LONG_S, REQUESTS_PER_S, new_directory
from tests.support.kept_runs import RIGHT, KeptRun, keep, load, next_seed

RESULTS = Path(__file__).with_name("results.jsonl")
FIRST_SEED = 1000
COMPLAINT_CHARACTERS_MAX = 2000
WRONG = "wrong"


@dataclass(frozen=True)
class Result(KeptRun):
    said: str


def summary(results: list[Result]) -> str:
    wrong = [result.seed for result in results if result.verdict != RIGHT]
    minutes = round(sum(result.seconds for result in results) / 60)
    return f"{len(results)} runs, {minutes} minutes; wrong: {len(wrong)} {wrong or ''}".rstrip()


def one_run(seed: int, seconds: float) -> Result:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    plan = draw(seed, round(seconds * REQUESTS_PER_S))
    try:
        said, verdict = run(plan, seconds, new_directory(f"seed-{seed}")), RIGHT
    except ChaosFailed as failed:
        said, verdict = str(failed)[:COMPLAINT_CHARACTERS_MAX], WRONG
    return Result(seed, date, seconds, verdict, said)


def main(arguments: list[str], now_s: Callable[[], float] = time.monotonic) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="minutes after which no further run begins")
    parser.add_argument("--seconds", type=float, default=LONG_S, help="seconds of each run")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--first", type=int, default=FIRST_SEED, help="first seed, if the results file is empty"
    )
    given = parser.parse_args(arguments)
    over = now_s() + given.minutes * 60
    was_wrong = False
    while now_s() < over:
        result = one_run(next_seed(load(given.results, Result), given.first), given.seconds)
        keep(given.results, result)
        print(f"seed {result.seed}: {result.verdict}: {result.said}", flush=True)
        was_wrong |= result.verdict == WRONG
    print(summary(load(given.results, Result)))
    return int(was_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
