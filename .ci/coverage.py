"""Compare the measured coverage of each package with the recorded one: ``python .ci/coverage.py [--write]``.

Reads ``.cache/coverage/report.json`` (the JSON report of coverage.py) and ``.ci/coverage.json`` (covered lines in percent,
by package). Exits with 1 if a package is more than ``TOLERANCE`` below its recorded figure; ``--write`` records the measured
figures instead.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / ".cache" / "coverage" / "report.json"
RECORDED = ROOT / ".ci" / "coverage.json"
# In percentage points: lines that only a race reaches are covered in some runs and not in others.
TOLERANCE = 0.3


def package_of(path: str) -> str:
    """``broker/groups`` for ``broker/groups/classic.py``; ``storage`` for everything below ``storage``."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "broker" and len(parts) > 2 else parts[0]


def main(arguments: list[str]) -> int:
    statements: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for path, file in json.loads(REPORT.read_text("utf-8"))["files"].items():
        statements[package_of(path)] += file["summary"]["num_statements"]
        covered[package_of(path)] += file["summary"]["covered_lines"]
    measured = {
        name: round(100 * covered[name] / count, 1) for name, count in sorted(statements.items()) if count
    }
    measured["all"] = round(100 * covered.total() / statements.total(), 1)
    if arguments == ["--write"]:
        RECORDED.write_text(json.dumps(measured, indent=2) + "\n", "utf-8")
    recorded = json.loads(RECORDED.read_text("utf-8"))
    for name, percent in measured.items():
        print(f"{name:32} {percent:6.1f} %   recorded {recorded.get(name, 0):6.1f} %")
    fallen = [name for name, percent in recorded.items() if measured.get(name, percent) < percent - TOLERANCE]
    if fallen:
        print(
            f"coverage has fallen: {', '.join(fallen)} (uncovered lines: .venv/bin/coverage report --show-missing)"
        )
    return 1 if fallen else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
