"""The interface of a node for connections and interceptors. The proxy implements it as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.loop.life import NodeLife
    from broker.loop.slices import Slices


class ServedNode(Protocol):
    """The part of a node that the connections and interceptors of a request use."""

    @property
    def node_id(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def life(self) -> NodeLife: ...

    @property
    def slices(self) -> Slices: ...

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic by its id; None if the topic is not known."""
        ...

    def session_partitions(self, session_id: int) -> Iterable[tuple[str, int]]:
        """The partitions of a fetch session; none if there is no such session."""
        ...

    def share_session_partitions(self, group_id: str, member_id: str) -> Iterable[tuple[str, int]]:
        """The partitions of the share session of a member of a share group; none if there is no such session."""
        ...
