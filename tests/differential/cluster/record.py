"""Records Kafka's responses: python -m tests.differential.cluster.record [scene or story id prefix ...]"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.differential import recordings, runner
from tests.differential.cluster import running
from tests.differential.cluster.running import RECORDED, Stage
from tests.differential.cluster.sides import kafka_side
from tests.support.deadlines import Stopwatch


def main(wanted: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-cluster-") as home,
        kafka_side(Path(home)) as side,
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
                running.record(entry, transcripts[entry.id])
                print(f"  {entry.id}: {len(transcripts[entry.id])} exchanges")
                recordings.say_early_end(transcripts[entry.id])
    recordings.drop_strays(RECORDED, running.entries(), partial(runner.save, folder=RECORDED))


if __name__ == "__main__":
    main(sys.argv[1:])
