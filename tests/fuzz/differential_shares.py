"""Random requests about share groups, for `tests.fuzz.differential`: of members, operators and leaders."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.differential.stories.share_clients import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acks,
    Batch,
    Member,
    Where,
    alter_offsets,
    delete_offsets,
    describe,
    describe_offsets,
    group_log,
    joined,
    state_log,
)
from tests.differential.story import Body, Story, Topic

STEPS: Final = 40
"""Number of steps of one seed. A step is one request, or two."""
PARTITIONS: Final = (0, 1)
WAIT_MS: Final = 150
"""``MaxWaitMs`` of most fetches: some find nothing."""
QUIET_S: Final = 0.1
"""Seconds after the end of a session in which a leader releases the session's records, beside the requests."""
TYPES: Final = (*[ACCEPT] * 5, *[RELEASE] * 4, REJECT, GAP)
STATE_GROUP: Final = "states"
"""A group with states at the share coordinator, and without members."""


class SharePlayer:
    """Sends random requests to one of the two brokers. A choice depends only on the seed and on what was acquired."""

    def __init__(self, story: Story, random: Random) -> None:
        self._story = story
        self._random = random
        self._topic: Topic
        self._members: list[Member] = []
        self._held: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """By member id and partition: the acquired ranges that the member has not acknowledged."""
        self._transactions = 0

    def run(self) -> None:
        story = self._story
        self._topic = story.topic(len(PARTITIONS))
        self._members = [joined(story, self._topic, partitions=len(PARTITIONS), **self._configs())]
        self._members += [Member(story, name) for name in ("m2", "never-joined")]
        self._begin()
        steps: list[tuple[Callable[[], None], int]] = [
            (self._fetch, 12),
            (self._acknowledge, 9),
            (self._produce, 4),
            (self._transact, 2),
            (self._open_again, 1),
            (self._end, 1),
            (self._disconnect, 1),
            (self._mistake, 2),
            (self._beat, 1),
            (self._inspect, 2),
            (self._operate, 1),
            (self._ask_for_state, 4),
        ]
        calls, weights = [call for call, _ in steps], [weight for _, weight in steps]
        for call in self._random.choices(calls, weights, k=STEPS):
            call()
        self._inspect()
        group_log(story)
        for partition in PARTITIONS:
            state_log(story, f"of {partition}", "g", self._topic, partition)
            state_log(story, f"of {partition}, without members", STATE_GROUP, self._topic, partition)

    def _configs(self) -> dict[str, str]:
        return {
            "share__isolation__level": self._draw("read_uncommitted", "read_committed"),
            "share__delivery__count__limit": self._draw("2", "3", "5"),
            "share__record__lock__duration__ms": "60000",
            "share__partition__max__record__locks": self._draw("100", "2000"),
            "share__renew__acknowledge__enable": self._draw("true", "true", "false"),
        }

    def _begin(self) -> None:
        """Load the share partitions, whose first fetch waits for the share coordinator. Initialize others."""
        member = self._members[0]
        for partition in PARTITIONS:
            self._write(partition, 10)
            member.until_acquired(
                f"the first fetch of {partition}", (self._topic, partition), share_session_epoch=0
            )
            member.session = 1
            member.end_session("ends the first session")
            time.sleep(QUIET_S)
        if self._random.random() < 0.8:
            alter_offsets(
                self._story,
                STATE_GROUP,
                *((self._topic.name, each, 0) for each in PARTITIONS),
                group=STATE_GROUP,
            )

    # ---- random choices

    def _draw(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _member(self) -> Member:
        return self._draw(*[self._members[0]] * 3, *[self._members[1]] * 2, self._members[2])

    def _where(self) -> Sequence[Where]:
        one, other = ((self._topic, partition) for partition in PARTITIONS)
        return self._draw((one,), (other,), (one, other), (other, one))

    def _acks(self, member: Member, *, renews: bool) -> Acks:
        """Acknowledgements of what the member holds, or of something near it."""
        found: dict[Where, Sequence[Batch]] = {}
        for partition in PARTITIONS:
            held = self._held.get((member.id, partition), [])
            rows = [
                self._batch(first, last, renews=renews) for first, last in held if self._random.random() < 0.6
            ]
            if self._random.random() < 0.1:
                first = self._random.randrange(60)
                rows.append(self._batch(first, first + self._draw(0, 1, 5), renews=renews))
            if rows:
                found[self._topic, partition] = rows if self._random.random() < 0.1 else sorted(rows)
        return found

    def _batch(self, first: int, last: int, *, renews: bool) -> Batch:
        match self._random.randrange(12):
            case 0 | 1 | 2:
                first = self._random.randint(first, last)
            case 3 | 4 | 5:
                last = self._random.randint(first, last)
            case 6:
                last += 1
            case 7:
                first = max(first - 1, 0)
        types = (*TYPES, RENEW, RENEW) if renews else TYPES
        if self._random.random() < 0.5 or last < first:
            return first, last, self._draw(*types, *((RENEW, 5, -1) if self._random.random() < 0.05 else ()))
        count = last - first + 1 + self._draw(*[0] * 20, 1, -1)
        return first, last, self._random.choices(types, k=max(count, 0))

    def _acknowledged(self, member: Member, acks: Acks, errors: dict[int, int]) -> None:
        """Forget the ranges that were acknowledged. What is left of a range is held."""
        for where, rows in acks.items():
            partition = where[1] if isinstance(where, tuple) else 0
            if errors.get(partition):
                continue
            held = self._held.get((member.id, partition), [])
            offsets = {offset for first, last in held for offset in range(first, last + 1)}
            for first, last, types in rows:
                for offset in range(first, last + 1):
                    kind = types if isinstance(types, int) else types[min(offset - first, len(types) - 1)]
                    if kind != RENEW:
                        offsets.discard(offset)
            self._held[member.id, partition] = _ranges(offsets)

    def _took(self, member: Member, answer: Body) -> None:
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                key = member.id, row["partition_index"]
                new = [(each["first_offset"], each["last_offset"]) for each in row["acquired_records"]]
                offsets = {
                    offset
                    for first, last in (*self._held.get(key, []), *new)
                    for offset in range(first, last + 1)
                }
                self._held[key] = _ranges(offsets)

    def _forget(self, member: Member) -> None:
        for partition in PARTITIONS:
            self._held.pop((member.id, partition), None)

    # ---- members

    def _fetch(self) -> None:
        member = self._member()
        acks = self._acks(member, renews=False) if member.session and self._draw(True, False) else {}
        if member.session and self._random.random() < 0.1:
            self._renew(member)
            return
        records_max = self._draw(1, 3, 10, 500)
        answer = member.fetch(
            "",
            *(self._where() if not member.session or self._draw(True, False) else ()),
            v=self._draw(1, 2) if not acks else 2,
            acks=acks,
            forgotten=self._where() if member.session and self._random.random() < 0.1 else (),
            max_wait=WAIT_MS,
            min_bytes=self._draw(1, 1, 1, 0, 100),
            max_bytes=self._draw(1 << 20, 1 << 20, 200),
            max_records=records_max,
            batch_size=self._draw(1, 4, records_max),
            share_acquire_mode=self._draw(0, 0, 1),
        )
        if not answer["error_code"]:
            rows = [row for topic in answer["responses"] for row in topic["partitions"]]
            errors = {row["partition_index"]: row["acknowledge_error_code"] for row in rows}
            self._acknowledged(member, acks, errors)
            self._took(member, answer)

    def _renew(self, member: Member) -> None:
        """Renew locks in a ShareFetch, which then fetches nothing."""
        acks = self._acks(member, renews=True)
        none = dict.fromkeys(("max_wait", "min_bytes", "max_bytes", "max_records", "batch_size"), 0)
        answer = member.fetch("renews", acks=acks, is_renew_ack=True, **none)
        rows = [row for topic in answer["responses"] for row in topic["partitions"]]
        self._acknowledged(
            member, acks, {row["partition_index"]: row["acknowledge_error_code"] for row in rows}
        )

    def _acknowledge(self) -> None:
        member, renews = self._member(), self._random.random() < 0.3
        acks = self._acks(member, renews=renews)
        v = 2 if renews else self._draw(1, 2)
        answer = member.acknowledge("", acks, v, **({"is_renew_ack": renews} if v == 2 else {}))
        if not answer["error_code"]:
            rows = [row for topic in answer["responses"] for row in topic["partitions"]]
            self._acknowledged(member, acks, {row["partition_index"]: row["error_code"] for row in rows})

    def _open_again(self) -> None:
        """Open a new session without the end of the former one, whose locks stay."""
        member = self._member()
        self._took(
            member, member.fetch("opens a session", *self._where(), share_session_epoch=0, max_wait=WAIT_MS)
        )

    def _end(self) -> None:
        member = self._member()
        if member.session:
            member.end_session(acks=self._acks(member, renews=False))
            self._forget(member)
            time.sleep(QUIET_S)

    def _disconnect(self) -> None:
        member = self._member()
        if member.session:
            self._story.put(f"{member.id} disconnects", None)
            member.disconnect()
            self._forget(member)
            time.sleep(QUIET_S)

    def _mistake(self) -> None:
        member, epoch = self._member(), self._draw(0, 1, 7, -2, 2**31 - 1)
        if self._draw(True, False):
            member.acknowledge(f"epoch {epoch}", self._acks(member, renews=False), share_session_epoch=epoch)
        elif epoch:  # epoch 0 would open a session
            member.fetch(f"epoch {epoch}", *self._where(), share_session_epoch=epoch, max_wait=WAIT_MS)

    def _beat(self) -> None:
        self._members[0].beat("", member_epoch=self._members[0].epoch + self._draw(0, 0, 1, -1))

    # ---- records

    def _write(self, partition: int, count: int) -> None:
        self._story.produce(self._topic, self._story.batch(count), partition=partition, quiet=True)

    def _produce(self) -> None:
        self._write(self._draw(*PARTITIONS), self._draw(1, 3, 20))

    def _transact(self) -> None:
        """Write records in a transaction, and end it."""
        story, partition = self._story, self._draw(*PARTITIONS)
        self._transactions += 1
        name = story.name(f"tx{self._transactions}")
        pid, epoch = story.producer_id(name)
        data = story.batch(self._draw(1, 3), pid=pid, epoch=epoch, seq=0, txn=True)
        story.produce(self._topic, data, v=12, partition=partition, tx=name, quiet=True)
        story.quiet(
            "end_txn",
            5,
            transactional_id=name,
            producer_id=pid,
            producer_epoch=epoch,
            committed=self._draw(True, False),
        )
        story.settle(name)

    # ---- operators and other brokers

    def _inspect(self) -> None:
        if self._draw(True, False):
            describe(self._story)
        else:
            describe_offsets(self._story, "", (self._topic.name, PARTITIONS), v=self._draw(0, 1))

    def _operate(self) -> None:
        """Alter or delete offsets: of the group with a member, which is refused, and of one without members."""
        group = self._draw("g", STATE_GROUP)
        if self._draw(True, True, False):
            rows = [(self._topic.name, self._draw(0, 1, 7), self._draw(0, 3, 100, -5))]
            alter_offsets(self._story, group, *rows, group=group)
        else:
            delete_offsets(self._story, group, self._topic.name, group=group)

    def _ask_for_state(self) -> None:
        """Send one of the five requests of a leader to the share coordinator."""
        state_epoch, leader_epoch = self._draw(0, 1, 2, -1), self._draw(0, 1, 2, -1)
        start_offset = self._draw(-1, 0, 2, 10)
        api, version = self._draw(
            ("initialize_share_group_state", 0),
            ("initialize_share_group_state", 0),
            ("read_share_group_state", 0),
            *[("write_share_group_state", 1)] * 4,
            ("delete_share_group_state", 0),
            ("read_share_group_state_summary", 1),
        )
        fields: Body = {
            "initialize_share_group_state": {"state_epoch": state_epoch, "start_offset": start_offset},
            "read_share_group_state": {"leader_epoch": leader_epoch},
            "write_share_group_state": {
                "state_epoch": max(state_epoch, 0),
                "leader_epoch": leader_epoch,
                "start_offset": start_offset,
                "delivery_complete_count": self._draw(-1, 0, 3),
                "state_batches": [self._state_batch() for _ in range(self._draw(0, 1, 1, 3))],
            },
            "delete_share_group_state": {},
            "read_share_group_state_summary": {"leader_epoch": leader_epoch},
        }[api]
        rows = [
            {"partition": partition, **fields} for partition in self._draw([0], [1], [0, 1], [0, 7], [-1], [])
        ]
        topics = [{"topic_id": self._topic.id, "partitions": rows}]
        self._story.ask(api, version, group_id=self._story.name(STATE_GROUP), topics=topics)

    def _state_batch(self) -> Body:
        first = self._draw(0, 1, 2, 5, 10)
        return {
            "first_offset": first,
            "last_offset": first + self._draw(0, 1, 4, 9),
            "delivery_state": self._draw(0, 2, 3, 4),
            "delivery_count": self._draw(1, 1, 2, 3),
        }


def _ranges(offsets: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found
