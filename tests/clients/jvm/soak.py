"""Long runs of the frameworks' loops, one seed after the other; what came of each is kept.

    python -m tests.clients.jvm.soak --minutes 20                 # each framework in turn, behind its last seed that is kept
    python -m tests.clients.jvm.soak --minutes 5 --only streams
    python -m tests.clients.jvm.soak --only streams --seed 7      # once more, and kept anew

The results are a JSON line for each run. The exit code is 0 if none of the runs of this call was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.clients.jvm.kills import Loop, draw, run
from tests.clients.jvm.test_connect import ConnectLoop
from tests.clients.jvm.test_debezium import DebeziumLoop
from tests.clients.jvm.test_flink import FlinkLoop, FlinkPoolingLoop
from tests.clients.jvm.test_spring import SpringConsumerLoop, SpringLoop
from tests.clients.jvm.test_streams import StreamsLoop
from tests.support.broker import Broker
from tests.support.deadlines import Stopwatch

LOOPS: Sequence[type[Loop]] = (
    StreamsLoop,
    ConnectLoop,
    DebeziumLoop,
    FlinkLoop,
    FlinkPoolingLoop,
    SpringLoop,
    SpringConsumerLoop,
)
RESULTS = Path(__file__).with_name("results.jsonl")
KILLS = 8
RIGHT = "right"
COMPLAINT_CHARACTERS_MAX = 4000


@dataclass(frozen=True)
class Result:
    framework: str
    seed: int
    date: str
    seconds: float
    verdict: str
    """"right", or what was wrong."""


def load(path: Path) -> list[Result]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [Result(**json.loads(line)) for line in lines]


def next_seed(results: Sequence[Result], framework: str) -> int:
    return max((each.seed + 1 for each in results if each.framework == framework), default=1)


def one_run(loop: type[Loop], seed: int) -> Result:
    date, watch = datetime.now(UTC).isoformat(timespec="seconds"), Stopwatch()
    verdict = RIGHT
    with tempfile.TemporaryDirectory(prefix=f"{loop.name}-{seed}-") as folder:
        home = Path(folder)
        try:
            with Broker(home / "broker", topics=loop.topics, settings=loop.settings) as broker:
                run(loop(broker, home), draw(loop, seed, KILLS))
        except Exception:
            verdict = traceback.format_exc()[-COMPLAINT_CHARACTERS_MAX:]
    return Result(loop.name, seed, date, round(watch.run_s, 1), verdict)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="begin no run after so long")
    parser.add_argument("--only", choices=[loop.name for loop in LOOPS], help="this framework")
    parser.add_argument("--seed", type=int, help="one run of this seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    loops = [loop for loop in LOOPS if given.only in (None, loop.name)]
    watch, was_wrong, rounds = Stopwatch(), False, 0
    while not watch.has_run_s(given.minutes * 60) and not (given.seed is not None and rounds == len(loops)):
        loop = loops[rounds % len(loops)]
        rounds += 1
        seed = given.seed if given.seed is not None else next_seed(load(given.results), loop.name)
        result = one_run(loop, seed)
        with given.results.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        print(f"{result.framework} {result.seed}: {result.seconds} s, {result.verdict}", flush=True)
        was_wrong |= result.verdict != RIGHT
    return int(was_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
