"""``python -m benchmarks.spark``: run each measure and print a table in Markdown.

Spark, the brokers and all other processes share the machine's cores, so run nothing else. Needs Java and
`odradek[audit,demo]`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.figures import Figure
from benchmarks.run import line, say, table
from benchmarks.spark import NAMES, SparkRun, load

CORES: Final = 2
SETTINGS: Final = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": str(CORES)}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # The cache directory of the checkout, which has its other downloads too.
    os.environ.setdefault("ODRADEK_CACHE", str(Path(__file__).parents[2] / ".cache"))
    from odradek.spark import session

    figures: list[Figure] = []
    spark = session("benchmarks", f"local[{CORES}]", SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="odradek-benchmarks-", dir=options.directory) as scratch:
        run = SparkRun(spark, options.scale, Path(scratch), say, options.rounds)
        for name in options.only or NAMES:
            for figure in load(name)(run):
                say(line(figure))
                figures.append(figure)
    spark.stop()
    print(table(f"Spark local[{CORES}], scale {options.scale:g},", figures))
    if options.json:
        report = {"machine": machine.describe(), "scale": options.scale, "figures": [*map(asdict, figures)]}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    too_much = [each.name for each in figures if each.within_limit is False]
    return 1 if options.check and too_much else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description="Spark against the broker and Kafka."
    )
    parser.add_argument("--only", action="append", choices=NAMES, help="run this measure (repeatable)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="1: the sizes of the recorded figures; 0.05: a quick trial"
    )
    parser.add_argument("--rounds", type=int, help="number of measurements (default: the measure's own)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--directory", type=Path, help="directory for data (3 GB; default: temporary)")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a figure is beyond its limit")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
