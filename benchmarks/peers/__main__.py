"""``python -m benchmarks.peers``: measure each row with each broker, in alternation, and print figures and ratios to Kafka.

Client and brokers share the machine, so keep it quiet: a round that other processes disturbed is repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import pages, plot
from benchmarks.peers.cells import FULL, QUICK
from benchmarks.peers.measures import GROUPS, MEASURES, ROWS
from benchmarks.peers.report import Report, commit, history, keep, report, table
from benchmarks.peers.rounds import Plan, Result, run_group
from benchmarks.peers.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.pages:
        say(f"written: {', '.join(redrawn())}")
        return 0
    measured, results = commit(), list[Result]()
    wanted = set(options.only or GROUPS)
    chosen = [
        measure for measure in MEASURES if {measure.group, *(row.name for row in measure.rows)} & wanted
    ]
    with tempfile.TemporaryDirectory(prefix="odradek-peers-", dir=options.directory) as scratch:
        plan = Plan(
            volumes=QUICK if options.quick else FULL,
            warms_up=not options.quick,
            targets=options.targets,
            rounds=1 if options.quick else options.rounds,
            repeats=0 if options.quick else options.repeats,
            scratch=Path(scratch),
            say=say,
        )
        found = report(measured, results, quick=options.quick)
        for group in GROUPS:
            measures = [measure for measure in chosen if measure.group == group]
            if measures:
                results += run_group(plan, group, measures)
                found = report(measured, results, quick=options.quick)
                # Save after each group: a run takes long, and partial results are useful if it is interrupted.
                save(options, found)
    print(table(found))
    if options.keep:
        say(f"written: {', '.join(redrawn())}")
    failed = [f"{result.row.name}: {result.failures}" for result in results if result.failures]
    for each in failed:
        say(each)
    return 1 if failed else 0


def save(options: argparse.Namespace, found: Report) -> None:
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.keep:
        say(f"saved in {keep(found)}")


def redrawn() -> list[str]:
    """Draw the plot and the pages from the history again. Returns the changed files."""
    plot.draw(history())
    return [plot.PICTURE.name, *pages.write()]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        action="append",
        choices=[*GROUPS, *ROWS],
        metavar="ROW",
        help="only this row or group (repeatable)",
    )
    parser.add_argument(
        "--targets", type=names, default=list(TARGETS), help="the brokers, separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeats", type=int, default=1, help="maximum number of disturbed rounds that are repeated"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny volumes and one round, only to test that it works"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE as JSON")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="save the figures in benchmarks/history, and draw the plot and the pages again",
    )
    parser.add_argument(
        "--pages", action="store_true", help="measure nothing, only draw the plot and the pages again"
    )
    parser.add_argument("--directory", type=Path, help="directory for data (10 GB; default: temporary)")
    return parser.parse_args(arguments)


def names(text: str) -> list[str]:
    chosen = text.split(",")
    unknown = set(chosen) - set(TARGETS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}"
        )
    return [name for name in TARGETS if name in chosen]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
