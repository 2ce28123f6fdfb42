"""Sends random requests about share groups to a broker in virtual time: ``python -m tests.fuzz.shares --seed 1``.

As `tests.fuzz.frames`, but most requests have the session epochs that the broker expects, and acknowledge what it has
delivered, or ranges near it: overlapping ones, gaps, wrong types, ranges of all offsets, arrays of many.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from typing import Any, Final
from uuid import UUID

from broker.requests.api import discover
from protocol.batch import build_batch
from tests.fuzz.frames import TOPICS, Fuzz, raw_name
from tests.fuzz.playing import play, play_seeds
from tests.fuzz.requests import Frame, Requests, World

GROUPS: Final = ("group-1", "group-2")
MEMBERS: Final = ("member-1", "member-2", "member-3")
SHARE_KEYS: Final = (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)
DAMAGE: Final = 0.1
HUGE: Final = 200_000
"""Number of elements of a large array. A request may have a million elements, in four partitions."""
PARTITIONS: Final = (0, 1)
Body = dict[str, Any]
Key = tuple[str, str, UUID, int]
"""(group, member, topic id, partition)."""


class ShareRequests(Requests):
    """Random requests about share groups. ``note`` must get each response."""

    def __init__(self, random: Random, world: World, topic_ids: list[UUID]) -> None:
        found = discover()
        super().__init__(random, world, {raw_name(key): found[key].versions for key in SHARE_KEYS})
        self._topic_ids = topic_ids
        self._prepared = self._preparations()
        self._asked: tuple[str, Body] = "", {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._held: dict[Key, list[tuple[int, int]]] = {}
        self.acquired = self.acknowledged = 0
        """Numbers of ranges that were acquired, and acknowledged without an error."""

    def draw(self) -> tuple[str, int, Body]:
        prepared = next(self._prepared, None)
        if prepared is not None:
            api, version, body = prepared
        elif self._random.random() < 0.2:
            api, version, body = super().draw()
        else:
            api, version, body = self._random.choices(
                (self._fetch, self._acknowledge, self._produce, self._beat), (8, 8, 3, 1)
            )[0]()
        self._asked = api, body
        return api, version, body

    def frame(self, correlation_id: int, damage: float) -> Frame:
        return super().frame(correlation_id, damage and DAMAGE)

    def note(self, frame: Frame, answer: Body) -> None:
        api, asked = self._asked
        if frame.is_damaged or api not in ("share_fetch", "share_acknowledge"):
            return
        session = asked["group_id"], asked["member_id"]
        if answer["error_code"]:
            self._epochs[session] = 0
            return
        self._epochs[session] = asked["share_session_epoch"] + 1
        acknowledged = {
            (topic["topic_id"], row["partition_index"])
            for topic in asked["topics"]
            for row in topic["partitions"]
            if row["acknowledgement_batches"]
        }
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                key = (*session, topic["topic_id"], row["partition_index"])
                error = row["error_code"] if api == "share_acknowledge" else row["acknowledge_error_code"]
                if key[2:] in acknowledged and not error:
                    self.acknowledged += len(self._held.pop(key, ()))
                new = row.get("acquired_records", ())
                self.acquired += len(new)
                self._held.setdefault(key, []).extend(
                    (each["first_offset"], each["last_offset"]) for each in new
                )

    # ---- requests

    def _preparations(self) -> Iterator[tuple[str, int, Body]]:
        """Records, groups that begin with the first record, and their share partitions."""
        for _ in range(2 * len(TOPICS)):
            yield self._produce()
        yield "find_coordinator", 4, {"key_type": 0, "coordinator_keys": list(GROUPS)}
        for group in GROUPS:
            configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
            resource = {"resource_type": 32, "resource_name": group, "configs": configs}
            yield "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False}
            partitions = [{"partition_index": index, "start_offset": 0} for index in PARTITIONS]
            topics = [{"topic_name": name, "partitions": partitions} for name in TOPICS]
            yield "alter_share_group_offsets", 0, {"group_id": group, "topics": topics}

    def _produce(self) -> tuple[str, int, Body]:
        random = self._random
        count = random.choice((1, 10, 100))
        data = build_batch([(1_800_000_000_000, None, b"x")] * count)
        partition = {"index": random.choice(PARTITIONS), "records": data}
        topics = [{"name": random.choice(TOPICS), "partition_data": [partition]}]
        body = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}
        return "produce", 9, body

    def _beat(self) -> tuple[str, int, Body]:
        random = self._random
        body = {
            "group_id": random.choice(GROUPS),
            "member_id": random.choice(MEMBERS),
            "member_epoch": random.choice((0, 0, -1, 2)),
            "rack_id": None,
            "subscribed_topic_names": random.choice((None, list(TOPICS), [])),
        }
        return "share_group_heartbeat", 1, body

    def _session(self) -> Body:
        random = self._random
        group, member = random.choice(GROUPS), random.choice(MEMBERS)
        epoch = self._epochs.get((group, member), 0)
        if random.random() < 0.08:
            epoch = random.choice((0, -1, -2, epoch + 1, 2**31 - 1))
        return {"group_id": group, "member_id": member, "share_session_epoch": epoch}

    def _fetch(self) -> tuple[str, int, Body]:
        random, body = self._random, self._session()
        renews = random.random() < 0.1
        limits = (0,) if renews else (1, 5, 500, 2**31 - 1)
        acknowledges = body["share_session_epoch"] != 0
        body |= {
            "max_wait": 0 if renews else random.choice((0, 100)),
            "min_bytes": 0 if renews else random.choice((0, 1, 1 << 20)),
            "max_bytes": random.choice(limits),
            "max_records": random.choice((*limits, *((0, -1) if not renews else ()))),
            "batch_size": random.choice((0, 1, 500, -1)),
            "share_acquire_mode": random.choice((0, 1)),
            "is_renew_ack": renews,
            "topics": self._topics(body, acknowledges=acknowledges, renews=renews),
            "forgotten_topics_data": [],
        }
        if random.random() < 0.1:
            body["forgotten_topics_data"] = [
                {"topic_id": random.choice(self._topic_ids), "partitions": [0, 7]}
            ]
        return "share_fetch", 2, body

    def _acknowledge(self) -> tuple[str, int, Body]:
        body, renews = self._session(), self._random.random() < 0.3
        body |= {"is_renew_ack": renews, "topics": self._topics(body, acknowledges=True, renews=renews)}
        return "share_acknowledge", 2, body

    def _topics(self, body: Body, *, acknowledges: bool, renews: bool) -> list[Body]:
        found = []
        for topic_id in self._topic_ids:
            rows = []
            for index in PARTITIONS:
                held = self._held.get((body["group_id"], body["member_id"], topic_id, index), [])
                batches = []
                if acknowledges and self._random.random() < 0.7:
                    batches = [self._batch(first, last, renews=renews) for first, last in held]
                    if self._random.random() < 0.1:
                        batches += self._near(held, renews=renews)
                rows.append({"partition_index": index, "acknowledgement_batches": batches})
            found.append({"topic_id": topic_id, "partitions": rows})
        return found

    def _batch(self, first: int, last: int, *, renews: bool) -> Body:
        random = self._random
        kinds = (1, 1, 1, 2, 2, 3, 0, *((4, 4) if renews else ()))
        count = min(max(last - first + 1, 0), HUGE) if random.random() < 0.5 else 1
        if random.random() < 0.03:
            count += random.choice((-1, 1))
        types = [random.choice(kinds)] * count if random.random() < 0.5 else random.choices(kinds, k=count)
        if types and random.random() < 0.02:
            types[-1] = random.choice((5, -1, 127, 4))
        return {"first_offset": first, "last_offset": last, "acknowledge_types": types}

    def _near(self, held: list[tuple[int, int]], *, renews: bool) -> list[Body]:
        """Ranges that do not fit to what the member holds."""
        random = self._random
        first, last = random.choice(held) if held else (0, 10)
        return random.choice(
            (
                [self._batch(first + 1, last, renews=renews)],
                [self._batch(max(first - 1, 0), last + 1, renews=renews)],
                [self._batch(first, last, renews=renews)] * 2,
                [self._batch(last, first, renews=renews)],
                [{"first_offset": 0, "last_offset": 2**63 - 1, "acknowledge_types": [1]}],
                [{"first_offset": -(2**63), "last_offset": 2**63 - 1, "acknowledge_types": [2]}],
                [{"first_offset": first, "last_offset": first + HUGE - 1, "acknowledge_types": [1] * HUGE}],
                [{"first_offset": at, "last_offset": at, "acknowledge_types": [2]} for at in range(10_000)],
            )
        )


class ShareFuzz(Fuzz):
    """A broker, and random requests about share groups from one seed."""

    requests: ShareRequests

    def _requests(self, random: Random) -> ShareRequests:
        topics = self._cluster.metadata.topics
        ids = [topics[name].topic_id for name in TOPICS]
        self.requests = ShareRequests(random, World(TOPICS, ids), ids)
        return self.requests

    def _note(self, frame: Frame, answer: Body) -> None:
        self.requests.note(frame, answer)


def fuzz(seed: int, frames: int) -> ShareFuzz:
    """Run one seed. Raises ``Failure`` if a frame is not handled correctly."""
    return play(ShareFuzz, seed, frames)


def main(arguments: list[str]) -> int:
    return play_seeds(
        arguments,
        __doc__,
        "frames",
        2000,
        fuzz,
        lambda work: f"{work.requests.acquired} ranges acquired, {work.requests.acknowledged} acknowledged",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
