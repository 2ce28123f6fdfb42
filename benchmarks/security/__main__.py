"""``python -m benchmarks.security``: measure TLS and SASL with Odradek and Apache Kafka, alternating, and print the ratios.

Client and brokers share the machine, so keep it quiet: a round that other processes disturbed is repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.cells import FULL, QUICK
from benchmarks.peers.report import commit, report, table
from benchmarks.peers.rounds import Plan, run_group
from benchmarks.security.measures import GROUP, MEASURES, ROWS, TARGETS
from benchmarks.security.targets import secured


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    measured = commit()
    measures = [measure for measure in MEASURES if not options.only or measure.rows[0].name in options.only]
    with tempfile.TemporaryDirectory(prefix="odradek-security-", dir=options.directory) as scratch:
        targets = secured(Path(scratch) / "tls")
        plan = Plan(
            volumes=QUICK if options.quick else FULL,
            warms_up=not options.quick,
            targets=options.targets.split(","),
            rounds=1 if options.quick else options.rounds,
            repeats=0 if options.quick else options.repeats,
            scratch=Path(scratch),
            say=say,
            target=targets.__getitem__,
        )
        results = run_group(plan, GROUP, measures)
    found = report(measured, results, quick=options.quick)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    failed = [f"{result.row.name}: {result.failures}" for result in results if result.failures]
    for each in failed:
        say(each)
    return 1 if failed else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.security", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only", action="append", choices=ROWS, metavar="ROW", help="only this row (repeatable)"
    )
    parser.add_argument("--targets", default=",".join(TARGETS), help="the brokers, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=3, help="maximum number of disturbed rounds that are repeated"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny volumes and one round, only to test that it works"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE as JSON")
    parser.add_argument("--directory", type=Path, help="directory for data (15 GB; default: temporary)")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
