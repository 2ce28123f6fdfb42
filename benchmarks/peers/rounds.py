"""Rounds: each measures all targets one after another, so that other work on the machine affects all of them."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.client import WrongResponse
from benchmarks.peers.cells import Cell, Measure, Row, Sample, Volumes
from benchmarks.peers.load import LoadFailed
from benchmarks.peers.targets import target
from benchmarks.targets import Running, Target, TargetFailed

DISTURBED_CORES: Final = 0.35
"""Number of cores. A round in which other processes used more does not count, if there are enough other rounds."""
BASE: Final = "kafka"
FAILURES: Final = (LoadFailed, TargetFailed, WrongResponse, OSError, subprocess.SubprocessError)
"""Exceptions that cost only the failed target its figures: the other targets are still measured."""


@dataclass(frozen=True)
class Plan:
    """The options of one run of the comparison of targets."""

    volumes: Volumes
    warms_up: bool
    """Whether a warm-up round precedes those that count."""
    targets: Sequence[str]
    rounds: int
    repeats: int
    """Maximum number of disturbed rounds of a measure that are repeated."""
    scratch: Path
    say: Callable[[str], None]
    target: Callable[[str], Target] = target


@dataclass
class Result:
    """All samples of a row of the comparison, by round and target."""

    row: Row
    rounds: list[dict[str, Sample]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def counted(self) -> list[dict[str, Sample]]:
        """The undisturbed rounds if there are at least two, else all."""
        calm = [each for each in self.rounds if not is_disturbed(each.values())]
        return calm if len(calm) >= min(2, len(self.rounds)) else self.rounds

    def report(self) -> dict[str, Any]:
        counted = self.counted()
        names = dict.fromkeys(name for each in self.rounds for name in each)
        figures = {name: figure([each[name] for each in counted if name in each]) for name in names}
        return {
            "title": self.row.title,
            "unit": self.row.unit,
            "cpu_unit": self.row.cpu_unit,
            "higher_is_better": self.row.higher_is_better,
            "rounds": len(self.rounds),
            "disturbed": sum(is_disturbed(each.values()) for each in self.rounds),
            "figures": figures,
            "ratios": ratios(self.row, figures),
            "failures": self.failures,
        }


def is_disturbed(samples: Iterable[Sample]) -> bool:
    return any(sample.other_cpu > DISTURBED_CORES for sample in samples)


def figure(samples: Sequence[Sample]) -> dict[str, Any]:
    values = [sample.value for sample in samples]
    told: dict[str, Any] = {
        "median": rounded(median(values)),
        "least": rounded(min(values)),
        "most": rounded(max(values)),
        "n": len(values),
        "others": round(median(sample.other_cpu for sample in samples), 2),
    }
    for name in ("cpu", "memory_mib"):
        found = [value for sample in samples if (value := getattr(sample, name)) is not None]
        if found:
            told[name] = rounded(median(found))
    for name in dict.fromkeys(name for sample in samples for name in sample.note):
        told[name] = rounded(median(sample.note[name] for sample in samples if name in sample.note))
    return told


def ratios(row: Row, figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Ratios to Apache Kafka by target. Above 1 the target is better, also where a lower figure is better."""
    if BASE not in figures:
        return {}
    base = figures[BASE]["median"]
    found: dict[str, float] = {}
    for name, each in figures.items():
        above, below = (each["median"], base) if row.higher_is_better else (base, each["median"])
        if name != BASE and below:
            found[name] = rounded(above / below)
    return found


def rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def run_group(plan: Plan, group: str, measures: Sequence[Measure]) -> list[Result]:
    """Run the measures of one group, which share their started targets."""
    results: list[Result] = []
    with ExitStack() as stack:
        running: dict[str, Running] = {}
        unable: dict[str, str] = {}
        for measure in measures:
            names = [name for name in plan.targets if name in measure.targets]
            for name in () if measure.starts_targets else names:
                if name in running or name in unable:
                    continue
                try:
                    directory = plan.scratch / f"{group}-{name}"
                    running[name] = stack.enter_context(plan.target(name).running(directory))
                    running[name].connect().close()
                except FAILURES as failure:
                    unable[name] = f"{name} did not start: {failure}"
            results += run_measure(plan, measure, names, running, unable)
    return results


_labels = itertools.count()


def run_measure(
    plan: Plan,
    measure: Measure,
    names: Sequence[str],
    running: Mapping[str, Running],
    unable: Mapping[str, str],
) -> list[Result]:
    known = {name: unable[name] for name in names if name in unable}
    results = [Result(row, failures=dict(known)) for row in measure.rows]
    if plan.warms_up:
        one_round(plan, measure, names, running, 0, results)
    done = disturbed = 0
    while done < plan.rounds:
        taken = one_round(plan, measure, names, running, done + disturbed + 1, results)
        samples = [sample for each in taken.values() for sample in each]
        if is_disturbed(samples) and disturbed < plan.repeats:
            disturbed += 1
        else:
            done += 1
    return results


def one_round(
    plan: Plan,
    measure: Measure,
    names: Sequence[str],
    running: Mapping[str, Running],
    number: int,
    results: Sequence[Result],
) -> dict[str, Sequence[Sample]]:
    taken: dict[str, Sequence[Sample]] = {}
    for name in names:
        if name in results[0].failures:
            continue
        label = f"{measure.rows[0].name}-{name}-{next(_labels)}"
        cell = Cell(plan.target(name), running.get(name), plan.volumes, number, plan.scratch, label)
        try:
            taken[name] = measure.take(cell)
        except FAILURES as failure:
            # The figures of the other targets are still useful.
            plan.say(f"{measure.rows[0].name}, {name}: {failure}")
            for result in results:
                result.failures[name] = str(failure)
            continue
        if number:
            plan.say(described(measure, name, number, taken[name]))
    if number:
        for index, result in enumerate(results):
            result.rounds.append({name: samples[index] for name, samples in taken.items()})
    return taken


def described(measure: Measure, name: str, number: int, samples: Sequence[Sample]) -> str:
    values = "; ".join(
        f"{row.name} {sample.value:.4g} {row.unit}" + (f", CPU {sample.cpu:.3g}" if sample.cpu else "")
        for row, sample in zip(measure.rows, samples, strict=True)
    )
    return f"round {number} {name:8} {values} (others {samples[0].other_cpu:.2f})"
