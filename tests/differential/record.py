"""Records Kafka's responses: python -m tests.differential.record [profile or story id prefix ...]"""

from __future__ import annotations

import sys
from functools import partial

from tests.differential import recordings, runner
from tests.differential.story import Entry
from tests.support.kafka_oracle import kafka_with_relay, restartable


def main(wanted: list[str]) -> None:
    for profile, setting in runner.PROFILES.items():
        chosen = recordings.chosen(runner.entries(profile), profile, wanted)
        if not chosen:
            continue
        if runner.has_own_broker(profile):
            for entry in chosen:
                keep(entry, on_own_kafka(entry))
            continue
        with kafka_with_relay(runner.kafka_properties(profile), transaction_version=setting["feature"]) as (
            oracle,
            relay,
        ):
            runner.warm_up(oracle.host, oracle.port)
            for entry in chosen:
                hold = partial(relay.hold, "write_txn_markers")
                keep(entry, runner.run(entry, oracle.host, oracle.port, hold_markers=hold))
    recordings.drop_strays(runner.RECORDED, runner.entries(), runner.save)


def keep(entry: Entry, transcript: runner.Transcript) -> None:
    runner.keep(entry.area, entry.name, transcript)
    print(f"{entry.id}: {len(transcript)} exchanges")
    recordings.say_early_end(transcript)


def on_own_kafka(entry: Entry, attempt: int = 0) -> runner.Transcript:
    """Run a story on a new Kafka that the story may restart."""
    setting = runner.PROFILES[entry.profile]
    with restartable(runner.kafka_properties(entry.profile), transaction_version=setting["feature"]) as kafka:
        return runner.run(entry, kafka.host, kafka.port, attempt, restart_broker=kafka.restart)


if __name__ == "__main__":
    main(sys.argv[1:])
