"""Runs many seeds and records their rare paths. Fails if a seed fails, or if 200 seeds never reach one of the named paths.

python -m tests.simulation.nightly --seeds 200       # resumable: seeds in the results file are not run again
python -m tests.simulation.nightly --table           # show the results so far
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.simulation.rare import NAMES

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("nightly.jsonl")
FIRST_SEED: Final = 1
SECONDS: Final = 150
AT_ONCE: Final = 5
"""Number of seeds that one process runs."""
SEEDS_FOR_ALL: Final = 200
"""Number of seeds after which every rare path must have been reached."""


def load(path: Path) -> dict[int, dict[str, Any]]:
    """The last result of each seed in the file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["seed"]: found for found in map(json.loads, lines)}


def run(seeds: list[int], seconds: float) -> list[dict[str, Any]]:
    """Run the seeds up to the first that fails, and return their results."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as reached:
        command = [
            sys.executable,
            "-m",
            "tests.simulation.run",
            f"--seed={seeds[0]}",
            f"--seeds={len(seeds)}",
        ]
        command += [f"--seconds={seconds}", f"--reached={reached.name}"]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found: list[dict[str, Any]] = [json.loads(line) for line in reached]
    if ended.returncode:
        seed = seeds[len(found)]
        said = (ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1]
        found.append({"seed": seed, "failed": said[:500]})
    return found


def missing(results: dict[int, dict[str, Any]]) -> list[str]:
    """Names of the rare paths that no seed has reached."""
    reached = {name for found in results.values() for name in found.get("reached", ())}
    return [name for name in NAMES if name not in reached]


def table(results: dict[int, dict[str, Any]]) -> str:
    counts = Counter(name for found in results.values() for name in found.get("reached", ()))
    lines = [f"{counts[name]:5} {name}" for name in sorted(NAMES, key=lambda name: counts[name])]
    failed = [found["failed"] for found in results.values() if "failed" in found]
    return "\n".join([f"{len(results)} seeds", *lines, *failed])


def verdict(results: dict[int, dict[str, Any]]) -> int:
    failed = any("failed" in found for found in results.values())
    return int(failed or (len(results) >= SEEDS_FOR_ALL and bool(missing(results))))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS_FOR_ALL)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of virtual time, of each seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    results = load(options.results)
    todo = [seed for seed in range(FIRST_SEED, FIRST_SEED + options.seeds) if seed not in results]
    while todo and not options.table:
        seeds = [seed for seed in range(todo[0], todo[0] + AT_ONCE) if seed in todo]
        seeds = seeds[: next((i for i, seed in enumerate(seeds) if seed != seeds[0] + i), len(seeds))]
        found = run(seeds, options.seconds)
        with options.results.open("a") as file:
            for line in found:
                print(json.dumps(line), file=file)
        results |= {line["seed"]: line for line in found}
        todo = [seed for seed in todo if seed not in results]
    print(table(results))
    return verdict(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
