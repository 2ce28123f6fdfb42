"""One member of a share group as a value (KIP-932). Pure."""

from __future__ import annotations

from dataclasses import field

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.member import Immutable
from protocol.slotted import slotted


@slotted(frozen=True, kw_only=True)
class ShareGroupMember(Immutable):
    """One member of a share group, immutable; ``evolve`` returns a changed copy."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: TargetAssignment = field(default_factory=dict)

    @property
    def regex(self) -> None:
        """None: a share group has no subscriptions by regular expression."""
        return None
