"""Prints the end of a run of ``.ci/run`` that failed: what failed and why, within 60 lines.

python3 .ci/ending.py STEP LOG FAILURES      # the step's name, the file with its output, the failures of its tests

The script imports no installed package, because the failed step may be the one that installs packages.
"""

import json
import sys
from pathlib import Path

LINES = 60
NAMES = 15
"""Largest number of failed tests that are named. Further ones are only counted."""
SHOWN = 3
"""Largest number of failed tests whose reports are shown."""
WIDTH = 400


def ending(step: str, log: Path, failures: list[dict]) -> list[str]:
    lines = [f"==== {step} failed, {len(failures)} failed tests" if failures else f"==== {step} failed"]
    lines += [f"FAILED {each['test']}" for each in failures[:NAMES]]
    if len(failures) > NAMES:
        lines.append(f"and {len(failures) - NAMES} more")
    shown = failures[:SHOWN]
    for index, each in enumerate(shown):
        room = (LINES - len(lines)) // (len(shown) - index)
        lines += _report(each, room)
    if not failures:
        text = log.read_text(errors="replace").splitlines() if log.exists() else ["it has written nothing"]
        lines += text[-(LINES - len(lines)) :]
    return [line[:WIDTH] for line in lines]


def _report(failure: dict, room: int) -> list[str]:
    """The end of a failed test's traceback, then stacks and output, in at most ``room`` lines."""
    sections = failure["sections"]
    head = [f"---- {failure['test']}"]
    # If a test hung, the stacks are more useful than the line of the test that waited.
    share = (room - 1) // (3 if any(each["title"].startswith("stacks") for each in sections) else 2)
    head += failure["lines"][-(room - 1 if not sections else share) :]
    for index, each in enumerate(sections):
        left = (room - len(head)) // (1 if index == 0 and len(sections) == 1 else 2)
        if left < 2:
            break
        # Stacks begin with the main thread and the oldest tasks. In everything else the end is most useful.
        text = each["lines"]
        kept = text[: left - 1] if each["title"].startswith("stacks") else text[-(left - 1) :]
        head += [f"-- {each['title']}", *kept]
    return head[:room]


def main(step: str, log: str, failures: str) -> None:
    path = Path(failures)
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    print("\n".join(ending(step, Path(log), found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
