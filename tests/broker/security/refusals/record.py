"""A program that records Kafka's responses: python -m tests.broker.security.refusals.record [case ...]"""

from __future__ import annotations

import sys

from tests.broker.security.refusals import stories
from tests.broker.security.refusals.cases import CASES
from tests.broker.security.refusals.kafka import kafka
from tests.broker.security.refusals.matrix import Answers, Recorded, ask, rows, save
from tests.broker.security.refusals.story import STORIES, play, save_stories
from tests.broker.security.refusals.world import World
from tests.support.deadlines import Stopwatch

assert stories


def main(wanted: list[str]) -> None:
    chosen = [case for case in CASES if not wanted or case.id in wanted or case.api in wanted]
    answers: Answers = {}
    if len(chosen) < len(CASES):
        recorded = Recorded()
        answers = {
            (row.case.id, row.version, row.user): recorded.answer(row)
            for row in rows(case for case in CASES if case not in chosen)
        }
    with kafka() as side:
        world = World(side)
        watch = Stopwatch()
        for row in rows(chosen):
            answers[row.case.id, row.version, row.user] = ask(world, row)
        print(f"{len(answers)} answers, {watch.run_s:.0f} s")
        told = {name: play(world, name) for name in STORIES}
    save(answers)
    save_stories(told)


if __name__ == "__main__":
    main(sys.argv[1:])
