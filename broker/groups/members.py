"""The members of one classic group, with the counts that the selection of a protocol needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from protocol.errors import NONE, ErrorCode
from protocol.hashing import java_string_hash
from protocol.messages.join_group import JoinGroupRequestProtocol
from protocol.slotted import slotted

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of a member's protocols, in the member's order of preference; names are unique."""

NO_ASSIGNMENT: Final = b""


def protocols_of(offered: Sequence[JoinGroupRequestProtocol]) -> Protocols:
    """Return the protocols of a JoinGroup. If several have the same name, the first one counts, as in Kafka."""
    unique: dict[str, bytes] = {}
    for protocol in offered:
        unique.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(unique.items())


@slotted(kw_only=True)
class Member:
    """One member of a classic group. ``joining``, ``syncing``: tokens that identify its waiting requests, or None."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    joining: object | None = None
    syncing: object | None = None
    is_new: bool = False
    """True while the client does not know its member id: it cannot send heartbeats, so its session runs during JoinGroup."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def may_be_silent(self) -> bool:
        """True while the session does not run, as the member is not new and waits for a JoinGroup or SyncGroup response."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(f"member {self.member_id} does not support {protocol_name}")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of the member's protocols that is among ``candidates``."""
        return next(name for name, _ in self.protocols if name in candidates)


class Members:
    """All members of a group by member id, in the order in which they joined."""

    __slots__ = ("_by_id", "_static", "_support", "awaiting_join")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._support: dict[str, int] = {}
        self.awaiting_join = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static_id(self, group_instance_id: str) -> str | None:
        """Current member id of the static member with this instance id; None if there is none."""
        return self._static.get(group_instance_id)

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that a member id belongs to a member of the group. Returns NONE or the error.

        With an instance id, the member id must also be the current one of this static member (KIP-345).
        """
        if group_instance_id is not None:
            living = self._static.get(group_instance_id)
            if living is None:
                return ErrorCode.unknown_member_id
            if living != member_id:
                return ErrorCode.fenced_instance_id
        return NONE if member_id in self._by_id else ErrorCode.unknown_member_id

    def add(self, member: Member) -> None:
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static
            self._static[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        if member.joining is not None:
            self.awaiting_join += 1

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.joining is not None:
            self.awaiting_join -= 1
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        return member

    def replace(self, old_id: str, new: Member) -> None:
        """Replace a member by ``new`` without changing the order of the members."""
        order = [new.member_id if member_id == old_id else member_id for member_id in self._by_id]
        self.remove(old_id)
        self.add(new)
        self._by_id = {member_id: self._by_id[member_id] for member_id in order}

    def update(
        self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: Member, token: object | None) -> object | None:
        """Set the member's JoinGroup that waits for a response, by its ``token``; None if no JoinGroup waits.

        Returns the previous token, or None.
        """
        before, member.joining = member.joining, token
        self.awaiting_join += (token is not None) - (before is not None)
        return before

    def support_any(self, names: Iterable[str]) -> bool:
        """Whether at least one of these protocols is supported by every member."""
        return any(self._support.get(name, 0) == len(self._by_id) for name in names)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes. Each member votes for its first protocol that all members support.

        As in Kafka, the order of a Java ``HashMap``, which depends on the names, breaks a tie.
        """
        candidates = {name for name, count in self._support.items() if count == len(self._by_id)}
        votes: dict[str, int] = {}
        for member in self._by_id.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return min(votes, key=lambda name: (-votes[name], _hash_map_bucket(name, len(votes))))

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def _count(self, protocols: Protocols, difference: int) -> None:
        for name, _ in protocols:
            count = self._support.get(name, 0) + difference
            if count:
                self._support[name] = count
            else:
                self._support.pop(name, None)


def _hash_map_bucket(key: str, entries: int) -> int:
    """Bucket of ``key`` in a ``java.util.HashMap`` that has grown from its default size to ``entries`` entries."""
    buckets = 16
    while entries > buckets * 3 // 4:
        buckets *= 2
    spread = java_string_hash(key) & 0xFFFF_FFFF
    return (spread ^ (spread >> 16)) & (buckets - 1)
