"""Records Kafka's answers: python -m tests.differential.record [profile or story id prefix ...]"""

from __future__ import annotations

import sys
from functools import partial

from tests.differential import runner
from tests.support.deadlines import Stopwatch
from tests.support.kafka_oracle import kafka_with_relay


def main(wanted: list[str]) -> None:
    for profile, setting in runner.PROFILES.items():
        chosen = [e for e in runner.entries(profile) if not wanted or any(_matches(w, e) for w in wanted)]
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
                for exchange in transcript:
                    if exchange["ask"] == "ended early":
                        print("   ended early:", exchange["answer"])
    drop_strays()


def drop_strays() -> None:
    """Recordings of stories that are no more."""
    for area in {file.stem for file in runner.RECORDED.glob("*.json")}:
        known = {e.name for e in runner.entries() if e.area == area}
        runner.save(area, {n: t for n, t in runner.load(area).items() if n in known})


def _matches(wanted: str, entry: runner.Entry) -> bool:
    return wanted == entry.profile or entry.id.startswith(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
