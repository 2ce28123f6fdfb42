"""Applies each mutant (a planted defect) of table.py and reports which layer of tests kills it. ``make mutants``, or

    python -m tests.mutants.run                      # mutants that are not in `results.json`
    python -m tests.mutants.run --only NAME --again  # run one of them again
    python -m tests.mutants.run --table              # show the results

A layer kills a mutant if it fails with the mutant in the tree: ``tests``, the tests of the changed package, and
``simulation``, any of 20 seeds. A run that needs more CPU seconds than ``CPU_S_MAX`` counts as failed: the mutant made it
loop. Without a mutant, the same seeds and the tests that kill mutants must pass. Results are stored at once, so an
interrupted run can be continued.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tests.mutants.planting import ROOT, planted
from tests.mutants.table import MUTANTS, Mutant

RESULTS: Final = Path(__file__).with_name("results.json")
SEEDS: Final = range(1, 21)
SECONDS: Final = 150
CPU_S_MAX: Final = 900
"""CPU seconds for 20 seeds, or for the tests of a package: several times what they need."""
LAYERS: Final = ("tests", "simulation")
SIMULATION_GOAL: Final = 3 / 4
"""Share of the mutants that the simulation alone must kill."""

LONGER: Final = {"ODRADEK_LOG_EXAMPLES": "300"}
"""Environment variables with which tests that draw random logs draw more of them than usual."""

Results = dict[str, dict[str, Any]]


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))

    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env=os.environ
        | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
        | LONGER,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limit,
        check=False,
    )


def by_simulation(root: Path, seeds: range = SEEDS) -> str | None:
    """The first seed that fails, with its message. None if all seeds pass."""
    arguments = [f"--seed={seeds[0]}", f"--seeds={len(seeds)}", f"--seconds={SECONDS}"]
    run = _run(root, "tests.simulation.run", *arguments)
    if run.returncode == 0:
        return None
    said = (run.stdout.strip().splitlines() or [""])[-1]
    return said[:200] if said.startswith("seed ") else f"ended with {run.returncode}: {said[:160]}"


def by_tests(root: Path, mutant: Mutant) -> str | None:
    """The first test that fails. None if all tests pass."""
    run = _run(root, "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *mutant.tests)
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", run.stdout, re.MULTILINE)
    if failed is None:
        return f"pytest ended with {run.returncode}"
    if _run(ROOT, "pytest", "-q", "-p", "no:cacheprovider", failed[1]).returncode:
        raise SystemExit(f"the test fails even without a mutant: {failed[1]}")
    return failed[1]


def digest(mutant: Mutant) -> str:
    """Hash of the patches. A result is valid only for the same patches."""
    return sha256(repr(mutant.patches).encode()).hexdigest()[:12]


def load() -> Results:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def save(results: Results) -> None:
    order = [mutant.name for mutant in MUTANTS if mutant.name in results]
    RESULTS.write_text(json.dumps({name: results[name] for name in order}, indent=1) + "\n")


def table(results: Results) -> str:
    """The results, a line for each mutant and a column for each layer."""
    width = max(len(mutant.name) for mutant in MUTANTS)
    lines = []
    for mutant in MUTANTS:
        found = results.get(mutant.name, {})
        marks = [("killed" if found[layer] else "lives") if layer in found else "unknown" for layer in LAYERS]
        by = found.get("simulation") or found.get("tests") or ""
        lines.append(f"{mutant.name:{width}}  {marks[0]:8} {marks[1]:8} {by}")
    counts = {layer: sum(bool(each.get(layer)) for each in results.values()) for layer in LAYERS}
    lines.append(f"{len(MUTANTS)} mutants; killed by {counts}")
    return "\n".join(lines)


def verdict(results: Results) -> list[str]:
    """Complaints about the results: mutants that no layer kills, and a simulation that alone kills too few mutants."""
    known = [results.get(mutant.name, {}) for mutant in MUTANTS]
    wrong = [
        f"{mutant.name} lives"
        for mutant, found in zip(MUTANTS, known, strict=True)
        if not any(found.get(layer) for layer in LAYERS)
    ]
    simulated = [found for mutant, found in zip(MUTANTS, known, strict=True) if mutant.simulated]
    in_simulation = sum(bool(found.get("simulation")) for found in simulated)
    if in_simulation < SIMULATION_GOAL * len(simulated):
        wrong.append(f"the simulation kills {in_simulation} of {len(simulated)}")
    return wrong


def plant(mutant: Mutant, layers: list[str], found: dict[str, Any], seeds: range) -> None:
    with planted(mutant) as root:
        for layer in layers:
            killer = by_simulation(root, seeds) if layer == "simulation" else by_tests(root, mutant)
            print(f"{mutant.name}: {layer}: {killer or 'lives'}", flush=True)
            if killer or layer != "simulation" or seeds == SEEDS:
                found[layer] = killer


def check_the_unchanged(layers: list[str]) -> None:
    if "simulation" in layers:
        with planted(None) as root:
            failure = by_simulation(root)
        if failure is not None:
            raise SystemExit(f"the simulation fails even without a mutant: {failure}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", help="run only mutants with this text in their name (repeatable)"
    )
    parser.add_argument("--layer", action="append", choices=LAYERS)
    parser.add_argument("--again", action="store_true", help="run mutants that have results, too")
    parser.add_argument("--table", action="store_true", help="plant nothing")
    parser.add_argument(
        "--unchecked", action="store_true", help="do not run the seeds without a mutant first"
    )
    parser.add_argument(
        "--seeds", type=int, default=len(SEEDS), help="number of seeds; with fewer only kills are stored"
    )
    options = parser.parse_args(arguments)
    results, seeds = load(), SEEDS[: options.seeds]
    layers = options.layer or list(LAYERS)
    todo: list[tuple[Mutant, list[str]]] = []
    for mutant in () if options.table else MUTANTS:
        found = results.get(mutant.name, {})
        same = found.get("patch") == digest(mutant)
        possible = [layer for layer in layers if layer == "tests" or mutant.simulated]
        missing = [layer for layer in possible if options.again or not same or layer not in found]
        if missing and (not options.only or any(part in mutant.name for part in options.only)):
            todo.append((mutant, missing))
    if todo and not options.unchecked:
        check_the_unchanged(sorted({layer for _, missing in todo for layer in missing}))
    for mutant, missing in todo:
        found = results.setdefault(mutant.name, {})
        if found.get("patch") != digest(mutant):
            found = results[mutant.name] = {"patch": digest(mutant)}
        plant(mutant, missing, found, seeds)
        save(results)
    print(table(results))
    wrong = verdict(results)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
