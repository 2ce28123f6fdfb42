"""Records Kafka's answers: python -m tests.differential.record [profile or story id prefix ...]"""

from __future__ import annotations

import sys
from functools import partial

from tests.differential import recordings, runner
from tests.support.deadlines import Stopwatch
from tests.support.kafka_oracle import kafka_with_relay


def main(wanted: list[str]) -> None:
    for profile, setting in runner.PROFILES.items():
        chosen = recordings.chosen(runner.entries(profile), profile, wanted)
        if not chosen:
            continue
        with kafka_with_relay(runner.kafka_properties(profile), transaction_version=setting["feature"]) as (
            oracle,
            relay,
        ):
            runner.warm_up(oracle.host, oracle.port)
            for entry in chosen:
                watch = Stopwatch()
                transcript = runner.run(
                    entry, oracle.host, oracle.port, hold_markers=partial(relay.hold, "write_txn_markers")
                )
                runner.save(entry.area, runner.load(entry.area) | {entry.name: transcript})
                print(f"{entry.id}: {len(transcript)} exchanges, {watch.run_s:.1f} s")
                recordings.say_early_end(transcript)
    recordings.drop_strays(runner.RECORDED, runner.entries(), runner.save)


if __name__ == "__main__":
    main(sys.argv[1:])
