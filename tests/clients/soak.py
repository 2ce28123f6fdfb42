"""Long runs of consume-process-produce loops of clients and frameworks, with consecutive seeds and stored results.

    python -m tests.clients.soak --minutes 20                 # each client in turn, from the seed after its last one
    python -m tests.clients.soak --minutes 5 --only streams
    python -m tests.clients.soak --only streams --seed 7      # one seed again

Each run appends a line of JSON to the results. The exit code is 0 if all runs of this call passed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.clients.soak_jobs import JOBS, Job
from tests.support.deadlines import Stopwatch
from tests.support.kept_runs import RIGHT, KeptRun, keep, load, next_seed

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("soak.jsonl")
COMPLAINT_CHARACTERS_MAX = 4000


@dataclass(frozen=True)
class Result(KeptRun):
    job: str


def next_seed_of(results: Sequence[Result], job: str) -> int:
    return next_seed((each for each in results if each.job == job), 1)


def longest_ago(results: Sequence[Result], jobs: Sequence[Job]) -> Job:
    """The job whose last run is the oldest. Jobs that never ran come first, in their order."""
    last = {each.job: number for number, each in enumerate(results)}
    return min(jobs, key=lambda job: last.get(job.name, -1))


def one_run(job: Job, seed: int) -> Result:
    date, watch = datetime.now(UTC).isoformat(timespec="seconds"), Stopwatch()
    verdict = RIGHT
    with tempfile.TemporaryDirectory(prefix=f"{job.name}-{seed}-") as folder:
        try:
            job.run(seed, Path(folder))
        except Exception:
            verdict = traceback.format_exc()[-COMPLAINT_CHARACTERS_MAX:].replace(f"{ROOT}/", "")
    return Result(seed, date, round(watch.run_s, 1), verdict, job.name)


def main(
    arguments: list[str],
    known: Sequence[Job] = JOBS,
    kept: Path = RESULTS,
    description: str | None = __doc__,
) -> int:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="minutes after which no further run begins")
    parser.add_argument(
        "--only", choices=[job.name for job in known], action="append", help="this (repeatable)"
    )
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--results", type=Path, default=kept)
    given = parser.parse_args(arguments)
    jobs = [job for job in known if given.only is None or job.name in given.only]
    watch, was_wrong, runs = Stopwatch(), False, 0
    while not watch.has_run_s(given.minutes * 60) and not (given.seed is not None and runs == len(jobs)):
        results = load(given.results, Result)
        job = jobs[runs] if given.seed is not None else longest_ago(results, jobs)
        runs += 1
        result = one_run(job, given.seed if given.seed is not None else next_seed_of(results, job.name))
        keep(given.results, result)
        print(f"{result.job} {result.seed}: {result.seconds} s, {result.verdict}", flush=True)
        was_wrong |= result.verdict != RIGHT
    return int(was_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
