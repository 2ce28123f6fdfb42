"""Process 336,776 flights exactly once while workers and broker are killed, and compare the result at the end."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from odradek.certify.judging.comparison import Difference
from odradek.deadlines import stretched
from odradek.demo import flights
from odradek.demo.clients import committed_rows, feed, read_results, transaction_counts
from odradek.demo.crew import Crew
from odradek.demo.doomed import restart_doomed
from odradek.demo.show import Show
from odradek.demo.verdict import compare, sees_planted_errors
from odradek.process import BrokerFailed, BrokerProcess

SOURCE, SINK, PARTITIONS, WORKERS = "flights", "flights-processed", 4, 2
CRASH_POINTS = {
    "txn.prepare.before": "before Prepare",
    "txn.prepare.after": "between Prepare and the markers",
    "txn.marker.after": "between the markers and Complete",
    "txn.offset.commit.after": "between TxnOffsetCommit and EndTxn",
}
WORKER_KILLS = 3
PASSAGES_MAX = 6
WORKERS_GIVING_UP_MAX = 10
"""Maximum number of workers that may give up.

A worker may have to restart after the broker was killed; workers that keep restarting have a bug.
"""
DEADLINE_S = stretched(110.0)
POLL_S = 0.1


class Demo:
    """One run of the demo: writes the input, starts, kills and restarts the processes, and compares the results."""

    def __init__(self, directory: Path, seed: int, show: Show) -> None:
        self.rng = random.Random(seed)
        self.show = show
        self.lines = flights.lines(flights.data_file())
        self.broker = BrokerProcess(
            directory / "broker",
            topics=[f"{SOURCE}:{PARTITIONS}", f"{SINK}:{PARTITIONS}"],
            settings={"group.min.session.timeout.ms": 1000},
        )
        self.crew = Crew(SOURCE, SINK, directory)
        self.points = list(CRASH_POINTS)
        self.rng.shuffle(self.points)
        # Fractions of the work at which a worker is killed, independent of the broker's kills.
        self.kill_at = sorted(self.rng.uniform(0.05, 0.85) for _ in range(WORKER_KILLS))
        self.broker_kills: list[str] = []
        self.worker_kills = self.open_transactions_hit = self.gave_up = 0
        self.killed: int | None = None

    def run(self) -> Difference:
        try:
            return self._run()
        finally:
            self.crew.close()
            self.broker.close()

    def _run(self) -> Difference:
        self._arm_and_start()
        self.show.say(f"broker on {self.broker.bootstrap}, {WORKERS} workers, {len(self.lines):,} flights")
        feeding = feed(self.broker.bootstrap, SOURCE, self.lines)
        for number in range(WORKERS):
            self.crew.start(number, self.broker.bootstrap)
        self._work()
        feeding.check()
        self.crew.close()
        self.show.say("reading the results with a read_committed consumer")
        observed = read_results(self.broker.bootstrap, SINK)
        expected = dict(flights.expected(flights.data_file()))
        difference = compare(expected, observed)
        if not difference and not sees_planted_errors(expected, observed):
            raise BrokerFailed("the comparison does not detect planted errors, so its result is worthless")
        self._report(len(observed), difference)
        return difference

    def _arm_and_start(self) -> None:
        """Restart the broker with the next crash point that has not been hit, if there is one."""
        point = f"{self.points[0]}:{self.rng.randint(2, PASSAGES_MAX)}" if self.points else None
        restart_doomed(self.broker, point)

    def _work(self) -> None:
        total, began = len(self.lines), time.monotonic()
        done = 0
        while done < total or self.points:
            if time.monotonic() - began > DEADLINE_S:
                raise BrokerFailed(f"only {done:,} of {total:,} flights were processed in {DEADLINE_S:.0f} s")
            if not self.broker.is_running:
                self._raise_broker()
            self._revive_workers()
            if self.kill_at and done >= self.kill_at[0] * total:
                self._kill_a_worker()
            now_done = committed_rows(self.broker.bootstrap, SOURCE, PARTITIONS)
            done = max(done, now_done)
            self.show.progress(done, total)
            if done >= total and self.points:
                raise BrokerFailed(
                    f"all flights were processed before the broker reached its crash point {CRASH_POINTS[self.points[0]]}"
                )
            time.sleep(POLL_S)

    def _raise_broker(self) -> None:
        """Restart the broker after it has killed itself at its crash point, which is inside a transaction."""
        where = CRASH_POINTS[self.points.pop(0)]
        self.broker_kills.append(where)
        self.open_transactions_hit += 1
        self.show.say(f"broker killed {where}; restarting")
        self._arm_and_start()

    def _revive_workers(self) -> None:
        for number in self.crew.dead():
            if number != self.killed:
                self.gave_up += 1
                complaint = self.crew.complaints(number)
                self.show.say(f"worker {number} gave up ({complaint}); starting it again")
                if self.gave_up > WORKERS_GIVING_UP_MAX:
                    raise BrokerFailed(f"workers keep giving up: {complaint}")
            self.killed = None
            self.crew.start(number, self.broker.bootstrap)

    def _kill_a_worker(self) -> None:
        """Kill a worker with SIGKILL, possibly in the middle of a transaction."""
        number = self.rng.randrange(WORKERS)
        self.kill_at.pop(0)
        was_open = self.crew.kill(number)
        self.killed = number
        self.worker_kills += 1
        self.open_transactions_hit += was_open
        state = "with an open transaction" if was_open else "between transactions"
        self.show.say(f"worker {number} killed {state}")

    def _report(self, records_out: int, difference: Difference) -> None:
        committed, aborted = transaction_counts(self.broker.bootstrap)
        self.show.report(
            {
                "records in": f"{len(self.lines):,}",
                "records out (read_committed)": f"{records_out:,}",
                "transactions committed": f"{committed:,}",
                "transactions aborted": f"{aborted:,}",
                "broker kills": f"{len(self.broker_kills)} ({'; '.join(self.broker_kills)})",
                "worker kills": str(self.worker_kills),
                "kills that hit an open transaction": str(self.open_transactions_hit),
                "planted lost, duplicated and changed records": "not tried" if difference else "detected",
            },
            difference,
        )


def main(arguments: list[str] | None = None) -> int:
    """Run ``odradek demo``. The exit code is 0 if each flight has its result exactly once."""
    parser = argparse.ArgumentParser(prog="odradek demo", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the times of the kills (default: random)")
    parser.add_argument("--keep", action="store_true", help="do not delete the broker's files at the end")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
    with Show() as show:
        show.say(f"seed {seed} (to repeat: odradek demo --seed {seed})")
        try:
            demo = Demo(directory, seed, show)
            difference = demo.run()
        except (BrokerFailed, flights.NoData) as failure:
            show.fail(str(failure))
            return 2
        finally:
            if options.keep:
                show.say(f"files: {directory}")
            else:
                shutil.rmtree(directory, ignore_errors=True)
    if not demo.open_transactions_hit:
        print("no kill hit an open transaction, so the run shows nothing", file=sys.stderr)
        return 2
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
