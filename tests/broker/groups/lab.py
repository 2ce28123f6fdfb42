"""A classic group without a coordinator: ``Lab`` carries out the effects of the group's requests (appends, responses,
timers), and has a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from broker.groups import classic, timeouts
from broker.groups.effects import Answer, Append, Arm, Cancel, Effect, Timed, Timer
from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.members import Protocols
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.records.consumer_protocol import Subscription

NOW_MS = 1_000_000
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE: Protocols = (("range", b"range of it"),)


def subscription(*topics: str) -> bytes:
    return Subscription(topics=topics).encode(0)


class Lab:
    """A group with short methods for requests. ``append_error`` makes appends fail, ``hold`` delays their commit."""

    def __init__(self, **config: int) -> None:
        self.now_ms = NOW_MS
        self.config = replace(ClassicGroupConfig(initial_rebalance_delay_ms=DELAY_MS), **config)
        self.group = ClassicGroup("g", self.config, state_since_ms=NOW_MS)
        self.timers: dict[Timer, int] = {}
        self.answers: dict[object, Any] = {}
        self.appends: list[Append] = []
        self.append_error = ErrorCode.none
        self.hold = False
        self.held: list[tuple[Append, list[Answer]]] = []
        self._uuids = count(1)
        self._tokens = count(1)

    # -- the coordinator's part ---------------------------------------------------------------------------------

    def do(self, effects: Sequence[Effect]) -> None:
        waiting: list[Answer] = []
        append: Append | None = None
        for effect in effects:
            match effect:
                case Arm(timer, delay_ms):
                    self.timers[timer] = self.now_ms + delay_ms
                case Cancel(timer):
                    self.timers.pop(timer, None)
                case Append():
                    assert append is None, "at most one append in a list of effects"
                    append = effect
                case Answer() if append is not None:
                    waiting.append(effect)
                case Answer(token, response):
                    self._answer(token, response)
        if append is not None:
            self.appends.append(append)
            self.held.append((append, waiting))
            if not self.hold:
                self.release()

    def _answer(self, token: object, response: object) -> None:
        assert token not in self.answers, "answered twice"
        self.answers[token] = response

    def release(self) -> None:
        """Commit the held appends, or fail them with ``append_error``."""
        while self.held:
            append, waiting = self.held.pop(0)
            self.do(classic.on_append_committed(self.group, append, self.append_error, self.now_ms))
            for answer in waiting:
                self._answer(answer.token, answer.response)

    def state(self) -> ClassicGroupState:
        return self.group.state

    def advance(self, by_ms: int) -> None:
        """Advance the clock and fire the timers that fall due, in their order."""
        end_ms = self.now_ms + by_ms
        while due := [(at_ms, timer) for timer, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, timer = min(due, key=lambda each: each[0])
            del self.timers[timer]
            self.now_ms = max(self.now_ms, at_ms)
            self.do(timeouts.expired(self.group, timer, self.now_ms))
        self.now_ms = end_ms

    # -- requests -----------------------------------------------------------------------------------------------

    def joiner(self, member_id: str = "", **changes: Any) -> classic.Joiner:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "api_version": 5,
            "uuid": f"u{next(self._uuids)}",
        }
        return classic.Joiner(**fields | changes)

    def join(self, member_id: str = "", **changes: Any) -> str:
        """Send JoinGroup and return a token. The response will be in ``answers`` under this token."""
        token = f"join-{next(self._tokens)}"
        self.do(classic.join(self.group, self.joiner(member_id, **changes), token, self.now_ms))
        return token

    def enter(self, **changes: Any) -> tuple[str, str]:
        """Join as a client does, the second time with the assigned member id. Returns (member id, token)."""
        if changes.get("group_instance_id") is not None or changes.get("api_version", 5) < 4:
            token = self.join(**changes)
            members = list(self.group.members)
            return members[-1].member_id, token
        first: JoinGroupResponse = self.answers[self.join(**changes)]
        assert first.error_code == ErrorCode.member_id_required
        return first.member_id, self.join(first.member_id, **changes)

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **changes: Any) -> str:
        token = f"sync-{next(self._tokens)}"
        fields: dict[str, Any] = {
            "group_id": "g",
            "generation_id": self.group.generation,
            "member_id": member_id,
            "assignments": [
                SyncGroupRequestAssignment(member_id=each, assignment=given)
                for each, given in (assignments or {}).items()
            ],
        }
        request = SyncGroupRequest(**fields | changes)
        self.do(classic.sync(self.group, request, token, self.now_ms))
        return token

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        error, effects = classic.heartbeat(self.group, member_id, instance, generation)
        self.do(effects)
        return error

    def leave(self, *leaving: MemberIdentity) -> LeaveGroupResponse:
        token = f"leave-{next(self._tokens)}"
        self.do(classic.leave(self.group, leaving, token, self.now_ms))
        response = self.answers[token]
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(
        self, member_id: str, generation: int, instance: str | None = None, *, transactional: bool = False
    ) -> ErrorCode:
        error, effects = classic.commit(
            self.group, member_id, instance, generation, transactional=transactional
        )
        self.do(effects)
        return error

    def joined(self, token: str) -> JoinGroupResponse:
        response = self.answers[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def synced(self, token: str) -> SyncGroupResponse:
        response = self.answers[token]
        assert isinstance(response, SyncGroupResponse)
        return response

    def error(self, token: str) -> ErrorCode:
        return ErrorCode(self.answers[token].error_code)

    def waits(self, token: str) -> bool:
        return token not in self.answers

    # -- states -------------------------------------------------------------------------------------------------

    def completing(self, members: int = 2, **changes: Any) -> list[str]:
        """Bring the group to CompletingRebalance with that many members. Returns their ids, the leader's first."""
        ids = [self.enter(**changes)[0] for _ in range(members)]
        self.advance(3 * DELAY_MS)
        assert self.group.state is ClassicGroupState.COMPLETING_REBALANCE
        return ids

    def stable(self, members: int = 2, **changes: Any) -> list[str]:
        """Bring the group to Stable with that many members. Returns their ids, the leader's first."""
        ids = self.completing(members, **changes)
        given = {member_id: f"of {number}".encode() for number, member_id in enumerate(ids)}
        for member_id in reversed(ids):
            self.sync(member_id, given if member_id == ids[0] else None)
        assert self.group.state is ClassicGroupState.STABLE
        return ids

    def preparing(self, members: int = 2, **changes: Any) -> list[str]:
        """Bring the group to PreparingRebalance with that many members that must rejoin, and a new member."""
        ids = self.stable(members, **changes)
        self.enter(**changes)
        assert self.group.state is ClassicGroupState.PREPARING_REBALANCE
        return ids

    def emptied(self) -> list[str]:
        """Bring the group to Empty and return the ids of its former members."""
        ids = self.stable()
        self.leave(*(MemberIdentity(member_id=member_id) for member_id in ids))
        assert self.group.state is ClassicGroupState.EMPTY
        return ids

    def session(self, member_id: str) -> int | None:
        """Milliseconds until the session of a member times out, None if it has no timer."""
        due_ms = self.timers.get(Timer(Timed.SESSION, member_id))
        return None if due_ms is None else due_ms - self.now_ms
