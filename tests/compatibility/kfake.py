"""Runs the recorded stories (scripted requests) on kfake, the most complete lightweight broker.

    python -m tests.compatibility.kfake

Needs Go. The results for the page are stored in ``tests/compatibility/results/kfake.json``, beside ours.
``ODRADEK_DEADLINE_FACTOR=0.03`` ends a story after four seconds without a response.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kept import text_of
from tests.compatibility.exchanges import exchanges_of, sum_of, to_json
from tests.differential import runner
from tests.support import raw
from tests.support.deadlines import HANG_S
from tests.support.foreign import go_program

HERE = Path(__file__).parent
SOURCES = HERE / "kfake"
RESULTS = HERE / "results" / "kfake.json"
MODULE = "github.com/twmb/franz-go/pkg/kfake"
PROFILES = ("main", "consumer-groups")
"""The profiles (sets of broker settings) that kfake supports. Others set feature levels, or need a real broker."""


def version() -> str:
    """The version of kfake in go.mod."""
    found = re.search(rf"^\s*(?:require )?{re.escape(MODULE)} (\S+)", (SOURCES / "go.mod").read_text(), re.M)
    assert found is not None
    return found[1]


@contextmanager
def kfake(settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    port = raw.free_port()
    command = [
        *go_program("kfake", SOURCES),
        str(port),
        *(f"{key}={value}" for key, value in settings.items()),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "started" in process.stdout.readline()
        yield "127.0.0.1", port
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(HANG_S)


def kept(version: str, profiles: Iterable[str], stories: Iterable[Mapping[str, list[Any]]]) -> str:
    """The results of all stories together, as JSON for the page."""
    return text_of({"version": version, "profiles": sorted(profiles), "exchanges": to_json(sum_of(stories))})


def main() -> None:
    stories: list[dict[str, list[Any]]] = []
    asked: set[str] = set()
    for profile in PROFILES:
        settings = runner.PROFILES[profile]["properties"]
        for entry in runner.entries(profile):
            recorded = runner.recorded(entry)
            assert recorded is not None
            # A new kfake for each story, so that a crash affects no other story.
            with kfake(settings) as (host, port):
                told = runner.run(entry, host, port)
            found = exchanges_of(recorded, runner.differences(entry, recorded, told))
            stories.append(to_json(found))
            asked.add(profile)
            print(entry.id, stories[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(kept(version(), asked, stories))


if __name__ == "__main__":
    main()
