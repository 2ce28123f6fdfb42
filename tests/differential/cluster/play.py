"""Runs stories on our nodes and prints differences from the recordings: python -m tests.differential.cluster.play [...]"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.differential import listed, recordings, runner
from tests.differential.cluster import running
from tests.differential.cluster.running import Stage
from tests.differential.cluster.sides import our_side
from tests.support.deadlines import Stopwatch


def main(wanted: list[str]) -> None:
    shows_all = "-v" in wanted
    wanted = [each for each in wanted if each != "-v"]
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as home,
        our_side(Path(home)) as side,
        Stage(side) as stage,
    ):
        for scene in running.SCENES.values():
            chosen = recordings.chosen(running.entries(scene.name), scene.name, wanted)
            if not chosen:
                continue
            watch = Stopwatch()
            transcripts = running.play(stage, scene, chosen)
            print(f"{scene.name}: {watch.run_s:.1f} s")
            for entry in chosen:
                found = runner.differences(entry, running.recorded(entry) or [], transcripts[entry.id])
                left = listed.unlisted(found, listed.rows())
                print(
                    f"  {entry.id}: {len(transcripts[entry.id])} exchanges, {len(found)} differences, {len(left)} unlisted"
                )
                recordings.say_early_end(transcripts[entry.id])
                for each in left:
                    print("     ", each)
                if shows_all:
                    for exchange in transcripts[entry.id]:
                        print("       ", json.dumps(exchange))


if __name__ == "__main__":
    main(sys.argv[1:])
