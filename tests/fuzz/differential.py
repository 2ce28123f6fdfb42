"""Sends the same random requests to Odradek and to Apache Kafka: responses and internal topics must be the same.

    python -m tests.fuzz.differential --seeds 50                  # resumable: not the seeds in the results file
    python -m tests.fuzz.differential --seeds 50 --kind shares    # requests about share groups

A seed is a story (`tests.differential`). Its requests depend only on the seed; producer ids, epochs and topic ids in them
are those that each side has assigned. Responses are normalised and compared field by field. The records of each
transactional id and group in ``__transaction_state`` and ``__consumer_offsets``, and those of share partitions in
``__share_group_state``, are compared too. Another release of Kafka
runs all seeds again.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from protocol.batch import batches
from protocol.records.group_log import (
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
)
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from tests.differential import runner
from tests.differential.listed import rows
from tests.differential.ours import ours
from tests.differential.stories.share_clients import PROFILE as SHARE_PROFILE
from tests.differential.story import Entry, Story, Topic, java_hash
from tests.fuzz.differential_shares import SharePlayer
from tests.support.java import KAFKA_VERSION
from tests.support.kafka_oracle import kafka

RESULTS: Final = Path(__file__).with_name("differential.jsonl")
STEPS: Final = 60
"""Number of requests of one seed."""
IDS: Final = 2
"""Number of transactional ids, and of groups, of one seed."""
TRANSIENT: Final = (14, 15, 16, 51)
"""Errors that depend on the time, not on the request. The request is sent again until it gets another response."""
INTERNAL_PARTITIONS: Final = 50


@dataclass(slots=True)
class Identity:
    """A producer with the id and epoch that one of the two brokers has assigned."""

    name: str | None
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)


class Player:
    """Sends random requests to one of the two brokers. Both get the same ones: no choice depends on a response."""

    def __init__(self, story: Story, random: Random) -> None:
        self._story = story
        self._random = random
        self._topic: Topic
        self._producers: list[Identity] = []
        self._groups = [story.name(f"g{number}") for number in range(IDS)]

    def run(self) -> None:
        story = self._story
        story.quiet("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
        # Producer id 0, the broker's first, also means "no id" in a response: use it up before the random requests.
        self._topic = story.topic(2)
        self._producers = [Identity(story.name(f"tx{number}")) for number in range(IDS)] + [Identity(None)]
        for each in self._producers:
            each.producer_id, each.epoch = story.producer_id(each.name)
        steps: list[tuple[Callable[[], None], int]] = [
            (self._init, 2),
            (self._add_partitions, 3),
            (self._add_offsets, 2),
            (self._produce, 8),
            (self._commit_in_transaction, 4),
            (self._end, 5),
            (self._commit, 2),
            (self._offsets, 2),
            (self._fetch, 3),
            (self._list_offsets, 2),
            (self._describe, 2),
            (self._delete_records, 1),
        ]
        calls, weights = [call for call, _ in steps], [weight for _, weight in steps]
        for call in self._random.choices(calls, weights, k=STEPS):
            call()
        self._settle_all()
        for each in self._producers:
            if each.name is not None:
                story.put(f"log of {each.name.removeprefix(story.prefix)}", self._transactions(each.name))
        for group in self._groups:
            story.put(f"log of {group.removeprefix(story.prefix)}", self._committed(group))

    # ---- random choices

    def _draw(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _producer(self, *, transactional: bool = True) -> Identity:
        return self._random.choice(self._producers[: IDS if transactional else IDS + 1])

    def _epoch(self, of: Identity) -> int:
        """The producer's epoch most of the time, otherwise another one."""
        return of.epoch + self._draw(0, 0, 0, 0, 0, 0, 0, -1, 1)

    def _who(self, of: Identity) -> dict[str, Any]:
        return {
            "transactional_id": of.name,
            "producer_id": of.producer_id + self._draw(*[0] * 15, 1 << 40),
            "producer_epoch": self._epoch(of),
        }

    def _ask(self, api: str, version: int, **body: Any) -> Any:
        return self._story.ask(api, version, retry=TRANSIENT, **body)

    def _settle_all(self) -> None:
        for each in self._producers:
            if each.name is not None:
                self._story.settle(each.name)

    # ---- requests

    def _init(self) -> None:
        of, again = self._producer(), self._draw(True, False)
        identity = {"producer_id": of.producer_id, "producer_epoch": self._epoch(of)} if again else {}
        version = self._draw(3, 4, 5) if again else self._draw(0, 2, 4, 5)
        answer = self._ask(
            "init_producer_id", version, transactional_id=of.name, transaction_timeout=60_000, **identity
        )
        if not answer["error_code"]:
            of.producer_id, of.epoch = answer["producer_id"], answer["producer_epoch"]
            of.sequences.clear()
        self._settle_all()

    def _add_partitions(self) -> None:
        of, version = self._producer(), self._draw(0, 2, 3)
        topics = [{"name": self._topic.name, "partitions": self._draw([0], [1], [0, 1], [0, 7])}]
        who = {f"v3_and_below_{name}": value for name, value in self._who(of).items()}
        self._ask("add_partitions_to_txn", version, v3_and_below_topics=topics, **who)

    def _add_offsets(self) -> None:
        group, version = self._random.choice(self._groups), self._draw(0, 2, 3, 4)
        self._ask("add_offsets_to_txn", version, group_id=group, **self._who(self._producer()))

    def _produce(self) -> None:
        of, partition = self._producer(transactional=False), self._draw(0, 1)
        expected = of.sequences.get(partition, 0)
        sequence = max(expected + self._draw(0, 0, 0, 0, 0, 0, -1, 1, 5), 0)
        count, version = self._draw(1, 1, 2), self._draw(7, 9, 11, 12)
        transactional = of.name is not None and self._draw(*[True] * 9, False)
        data = self._story.batch(
            count,
            pid=of.producer_id,
            epoch=self._epoch(of),
            seq=sequence,
            txn=transactional,
            codec=self._draw(0, 0, 0, 1, 2, 4),
        )
        answer = self._story.produce(
            self._topic,
            data,
            v=version,
            partition=partition,
            acks=self._draw(-1, 1),
            tx=of.name if transactional else None,
            retry=TRANSIENT,
        )
        if not answer["responses"][0]["partition_responses"][0]["error_code"] and sequence == expected:
            of.sequences[partition] = sequence + count

    def _rows(self, *, metadata: str | None = "m") -> list[dict[str, Any]]:
        return [
            {
                "name": self._topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": self._random.randrange(100),
                        "committed_metadata": metadata,
                    }
                    for index in self._draw([0], [1], [0, 1], [0, 9])
                ],
            }
        ]

    def _member(self) -> dict[str, Any]:
        return self._draw(
            {}, {}, {}, {"generation_id": 1, "member_id": "m"}, {"generation_id": -1, "member_id": "m"}
        )

    def _commit_in_transaction(self) -> None:
        version, of = self._draw(0, 2, 3, 4, 5, 5), self._producer()
        member = self._member() if version >= 3 else {}
        group = self._random.choice(self._groups)
        self._ask(
            "txn_offset_commit", version, group_id=group, topics=self._rows(), **self._who(of), **member
        )

    def _end(self) -> None:
        of, version = self._producer(), self._draw(0, 3, 4, 5, 5, 5)
        answer = self._ask("end_txn", version, committed=self._draw(True, False), **self._who(of))
        self._settle_all()
        if version >= 5 and not answer["error_code"]:
            if (answer["producer_id"], answer["producer_epoch"]) != (of.producer_id, of.epoch):
                of.sequences.clear()
            of.producer_id, of.epoch = answer["producer_id"], answer["producer_epoch"]

    def _commit(self) -> None:
        group, version = self._random.choice(self._groups), self._draw(2, 5, 7, 8)
        member = {
            {"generation_id": "generation_id_or_member_epoch"}.get(name, name): value
            for name, value in self._member().items()
        }
        member.setdefault("generation_id_or_member_epoch", -1)
        self._ask("offset_commit", version, group_id=group, topics=self._rows(), **member)

    def _offsets(self) -> None:
        group, stable = self._random.choice(self._groups), self._draw(True, False)
        topics = [{"name": self._topic.name, "partition_indexes": [0, 1, 9]}]
        version = self._draw(1, 5, 7) if not stable else 7
        body: dict[str, Any] = {"require_stable": True} if stable else {}
        self._story.ask("offset_fetch", version, group_id=group, topics=topics, **body)

    def _fetch(self) -> None:
        self._story.fetch(
            [(self._topic, index, self._draw(0, 0, 2)) for index in (0, 1)],
            v=self._draw(4, 7, 11, 12),
            isolation_level=self._draw(0, 1),
        )

    def _list_offsets(self) -> None:
        partitions = [{"partition_index": index, "timestamp": self._draw(-1, -2, -3, 0)} for index in (0, 1)]
        topics = [{"name": self._topic.name, "partitions": partitions}]
        level = self._draw(0, 1)
        self._ask("list_offsets", 7, replica_id=-1, isolation_level=level, topics=topics)

    def _describe(self) -> None:
        if self._draw(True, False):
            topics = [{"name": self._topic.name, "partition_indexes": [0, 1]}]
            self._ask("describe_producers", 0, topics=topics)
        else:
            names = [each.name for each in self._producers if each.name is not None]
            self._ask("describe_transactions", 0, transactional_ids=[*names, self._story.name("unknown")])

    def _delete_records(self) -> None:
        partitions = [{"partition_index": 0, "offset": self._draw(1, 2, -1, 1 << 30)}]
        topics = [{"name": self._topic.name, "partitions": partitions}]
        self._ask("delete_records", 2, topics=topics, timeout=5_000)

    # ---- the internal topics

    def _log(self, topic: str, key: str) -> Iterator[tuple[Any, bytes | None, bytes | None]]:
        """Yield (batch, record key, record value) of all records in the partition of a transactional id or group."""
        index, offset = java_hash(key) % INTERNAL_PARTITIONS, 0
        while True:
            partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            answer = self._story.quiet(
                "fetch",
                12,
                replica_id=-1,
                max_wait=0,
                min_bytes=0,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": topic, "partitions": [partition]}],
            )
            before = offset
            for batch in batches(answer["responses"][0]["partitions"][0]["records"] or b""):
                offset = batch.next_offset
                if not batch.is_control:
                    for record in batch.records():
                        yield batch, record.key, record.value
            if offset == before:
                return

    def _pid(self, producer_id: int) -> Any:
        return self._story.normal.symbol("pid", producer_id) if producer_id >= 0 else producer_id

    def _transactions(self, name: str) -> list[dict[str, Any]]:
        found = []
        for _, key, raw in self._log("__transaction_state", name):
            if key is None or TransactionLogKey.decode(key).transactional_id != name:
                continue
            value = TransactionLogValue.decode(raw) if raw is not None else None
            found.append({} if value is None else self._transaction(value))
        return found

    def _transaction(self, value: TransactionLogValue) -> dict[str, Any]:
        partitions = value.transaction_partitions
        return {
            "producer": [
                self._pid(each)
                for each in (value.producer_id, value.previous_producer_id, value.next_producer_id)
            ],
            "epochs": [value.producer_epoch, value.next_producer_epoch],
            "timeout": value.transaction_timeout_ms,
            "status": value.transaction_status,
            "version": value.client_transaction_version,
            "started": value.transaction_start_timestamp_ms >= 0,
            "partitions": None
            if partitions is None
            else sorted(
                (each.topic.removeprefix(self._story.prefix), sorted(each.partition_ids))
                for each in partitions
            ),
        }

    def _committed(self, group: str) -> list[Any]:
        found = []
        for batch, raw_key, raw in self._log("__consumer_offsets", group):
            key = decode_key(raw_key or b"")
            if isinstance(key, UnknownKey) or getattr(key, "group", None) != group:
                continue
            value = decode_value(key, raw)
            row: dict[str, Any] = {
                "type": type(key).__name__,
                "producer": [self._pid(batch.producer_id), batch.producer_epoch],
                "transactional": batch.is_transactional,
            }
            if isinstance(key, OffsetCommitKey):
                row["partition"] = key.partition
            if isinstance(value, OffsetCommitValue):
                row |= {"offset": value.offset, "metadata": value.metadata, "epoch": value.leader_epoch}
            found.append(row)
        return found


KINDS: Final[dict[str, tuple[str, Callable[[Story, Random], Any]]]] = {
    "transactions": ("main", Player),
    "shares": (SHARE_PROFILE, SharePlayer),
}
"""By kind of the requests: the profile of the brokers, and the class that sends the requests."""


def entry(seed: int, kind: str = "transactions") -> Entry:
    """Return a story with the random requests of a seed. The story is not among the recorded ones."""
    profile, player = KINDS[kind]

    def play(story: Story) -> None:
        player(story, Random(f"{seed}/differential")).run()

    return Entry("fuzz", f"seed-{seed}", play, profile)


def compare(found: Entry, of_kafka: runner.Transcript, of_ours: runner.Transcript) -> list[str]:
    """Differences that no row of docs/differences.md explains, even a row for another story."""
    table = rows()
    return [
        str(each)
        for each in runner.differences(found, without_partial_batches(of_kafka), of_ours)
        if not any(
            row.met(runner.Difference(row.stories[0].replace("*", "x"), *_rest(each))) for row in table
        )
    ]


def without_partial_batches(transcript: runner.Transcript) -> runner.Transcript:
    """The transcript without the partial batches behind the records of a ShareFetch, which only Kafka has."""
    found = copy.deepcopy(transcript)
    for line in found:
        if line["ask"].startswith("share_fetch") and isinstance(line["answer"], dict):
            for row in (row for topic in line["answer"]["responses"] for row in topic["partitions"]):
                row["records"] = [each for each in row["records"] or () if "partial" not in each]
    return found


def _rest(difference: runner.Difference) -> tuple[int, str, str, Any, Any]:
    return difference.number, difference.ask, difference.field, difference.kafka, difference.ours


def load(path: Path, kind: str) -> dict[int, dict[str, Any]]:
    """The results of one kind, by seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {
        found["seed"]: found
        for found in map(json.loads, lines)
        if found["release"] == KAFKA_VERSION and found.get("kind", "transactions") == kind
    }


def fuzz(seeds: list[int], note: Callable[[int, list[str], int], object], kind: str = "transactions") -> None:
    """Run seeds on both sides. ``note`` gets each seed, its differences and the number of compared exchanges."""
    setting = runner.PROFILES[KINDS[kind][0]]
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as directory,
        kafka(setting["properties"], transaction_version=setting["feature"]) as oracle,
        ours(Path(directory)) as mine,
    ):
        runner.warm_up(oracle.host, oracle.port)
        for seed in seeds:
            found = entry(seed, kind)
            theirs = runner.run(found, oracle.host, oracle.port)
            note(seed, compare(found, theirs, mine.transcript(found)), len(theirs))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=KINDS, default="transactions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="also run seeds that are in the results")
    options = parser.parse_args(arguments)
    known = {} if options.again else load(options.results, options.kind)
    seeds = [seed for seed in range(options.seed, options.seed + options.seeds) if seed not in known]
    failed = [seed for seed, found in known.items() if found["differences"]]

    def note(seed: int, differences: list[str], exchanges: int) -> None:
        with options.results.open("a") as file:
            found: dict[str, Any] = {"release": KAFKA_VERSION, "kind": options.kind, "seed": seed}
            found["exchanges"] = exchanges
            found["differences"] = differences[:20]
            print(json.dumps(found), file=file)
        print(f"seed {seed}: {exchanges} exchanges, {len(differences)} differences", flush=True)
        print(*differences[:20], sep="\n")
        if differences:
            failed.append(seed)

    if seeds:
        fuzz(seeds, note, options.kind)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
