"""Records the tools' output with Apache Kafka: python -m tests.differential.console_tools.record [profile or story id ...]

--missing records only stories that have no recording. --ours records nothing: it runs the stories on our broker, and prints
the differences from the recordings.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.differential import listed, recordings
from tests.differential.console_tools import runner
from tests.differential.console_tools.sides import PROFILES, kafka_side, our_side
from tests.differential.runner import keep
from tests.support.deadlines import Stopwatch


def main(arguments: list[str]) -> None:
    wanted = [each for each in arguments if not each.startswith("-")]
    is_ours = "--ours" in arguments
    for profile in PROFILES:
        chosen = recordings.chosen(runner.entries(profile), profile, wanted)
        if "--missing" in arguments:
            chosen = [entry for entry in chosen if entry.name not in runner.load(entry.area)]
        if not chosen:
            continue
        side_of = our_side if is_ours else kafka_side
        with (
            tempfile.TemporaryDirectory(prefix="console-tools-") as home,
            side_of(profile, Path(home)) as side,
        ):
            for entry in chosen:
                watch = Stopwatch()
                transcript = runner.run(entry, side)
                print(f"{entry.id}: {len(transcript)} commands, {watch.run_s:.1f} s", flush=True)
                if "-v" in arguments:
                    print(json.dumps(transcript, indent=1, ensure_ascii=False))
                if is_ours:
                    show(entry, transcript)
                else:
                    keep(entry.area, entry.name, transcript, runner.RECORDED, runner.save)
                recordings.say_early_end(transcript)
    if not is_ours:
        recordings.drop_strays(runner.RECORDED, runner.entries(), runner.save)


def show(entry: runner.Entry, transcript: runner.Transcript) -> None:
    found = runner.differences(entry, runner.load(entry.area).get(entry.name, []), transcript)
    for difference in listed.unlisted(found, listed.rows(columns=listed.COLUMNS_OF_TOOLS)):
        print("   ", difference)


if __name__ == "__main__":
    main(sys.argv[1:])
