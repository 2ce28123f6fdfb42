"""Records Kafka's answers: python -m tests.differential.cluster.record [scene or story id prefix ...]"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.differential import runner
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
            chosen = [
                e
                for e in running.entries(scene.name)
                if not wanted or any(w == scene.name or e.id.startswith(w) for w in wanted)
            ]
            if not chosen:
                continue
            watch = Stopwatch()
            transcripts = running.play(stage, scene, chosen)
            print(f"{scene.name}: {watch.run_s:.1f} s")
            for entry in chosen:
                running.record(entry, transcripts[entry.id])
                print(f"  {entry.id}: {len(transcripts[entry.id])} exchanges")
                for exchange in transcripts[entry.id]:
                    if exchange["ask"] == "ended early":
                        print("   ended early:", exchange["answer"])
    drop_strays()


def drop_strays() -> None:
    """Recordings of stories that are no more."""
    for area in {file.stem for file in RECORDED.glob("*.json")}:
        known = {e.name for e in running.entries() if e.area == area}
        kept = {n: t for n, t in runner.load(area, RECORDED).items() if n in known}
        if kept:
            runner.save(area, kept, RECORDED)
        else:
            (RECORDED / f"{area}.json").unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
