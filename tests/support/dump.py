"""Functions that run Kafka's `DumpLogSegments` (kafka-dump-log.sh) on files, and fail if it reports an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.support.javaprog import java_clients

COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|error|exception|non-consecutive|out of order|not found|Could not deserialize",
    re.I,
)


def complaints(printed: str, at_the_end: str) -> list[str]:
    """The lines with errors in the tool's output ``printed`` and ``at_the_end``.

    Without the error about a file that does not begin with offset 0, which is not an error.
    """
    lines = [line for line in printed.splitlines() if not line.startswith(("Dumping ", "| offset:"))]
    found = [line for line in lines if COMPLAINTS.search(line.replace("isvalid: true", ""))]
    found += [line for line in printed.splitlines() if "Could not deserialize" in line]
    lines = [line for line in at_the_end.splitlines() if COMPLAINTS.search(line) or "followed by" in line]
    pairs = [line for line in lines if "followed by" in line]
    if pairs and all(line.strip().startswith("-1 is followed by") for line in pairs):
        lines = [line for line in lines if line not in pairs and "Non-consecutive offsets" not in line]
    return found + lines


def dump(files: Sequence[Path], *flags: str) -> str:
    """Run the tool on files of one kind and return its output, which must contain no error."""
    assert files
    ran = java_clients().tool(
        "org.apache.kafka.tools.DumpLogSegments", *flags, "--files", ",".join(map(str, files))
    )
    assert ran.status == 0, ran.out[-3000:] + ran.err[-3000:]
    found = complaints(ran.out, ran.err)
    assert found == [], found
    return ran.out


def by_file(printed: str) -> dict[str, list[str]]:
    """The lines about each file, by ``folder/name``."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in printed.splitlines():
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            lines = found.setdefault(f"{path.parent.name}/{path.name}", [])
        else:
            lines.append(line)
    return found


def fields(line: str) -> dict[str, str]:
    """Values by name, from each ``name: value`` of a line."""
    return dict(re.findall(r"(\w+): (\S+)", line))
