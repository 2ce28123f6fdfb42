"""``python -m benchmarks.run``: run the measures against one target and print a Markdown table.

Client and broker share the machine, so keep it quiet: the column `others` has the number of cores that other processes used.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import machine, measures
from benchmarks.figures import Figure, Run
from benchmarks.pure import judged
from benchmarks.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="odradek-benchmarks-", dir=options.directory) as scratch:
        run = Run(TARGETS[options.target](), options.quick, Path(scratch), say)
        for name in options.only or measures.NAMES:
            for figure in map(judged, measures.load(name)(run)):
                say(line(figure))
                figures.append(figure)
    print(table(options.target, figures))
    if options.json:
        report = {
            "machine": machine.describe(),
            "target": options.target,
            "quick": options.quick,
            "figures": [asdict(each) for each in figures],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    too_much = [each.name for each in figures if each.within_limit is False]
    return 1 if options.check and too_much else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=sorted(TARGETS), default="odradek", help="the broker to measure")
    parser.add_argument(
        "--only", action="append", choices=measures.NAMES, help="only this measure (repeatable)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE as JSON")
    parser.add_argument("--directory", type=Path, help="directory for data (3 GB; default: temporary)")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a figure exceeds its limit")
    return parser.parse_args(arguments)


def line(figure: Figure) -> str:
    return f"{figure.name}: {number(figure.value)} {figure.unit}"


def table(target: str, figures: Sequence[Figure]) -> str:
    rows = [
        f"{target} on {', '.join(f'{key} {value}' for key, value in machine.describe().items())}",
        "",
        "| measure | figure | limit | beside it | details | others |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in figures:
        sign = ">=" if each.higher_is_better else "<="
        limit = "" if each.limit is None else f"{sign} {number(each.limit)}"
        missed = " **missed**" if each.within_limit is False else ""
        rows.append(
            f"| {each.name} | {number(each.value)} {each.unit} | {limit}{missed} | {each.baseline} | {each.note}"
            f" | {each.other_cpu:.2f} |"
        )
    return "\n".join(rows)


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
