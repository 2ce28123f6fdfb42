"""ListGroups: the groups that this broker coordinates.

KIP-518 (v4) adds the state and a filter by state; KIP-848 (v5) adds the type and a filter by type. An unknown state or type
in a filter matches no group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group


@api(key=16, versions=range(6))
def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    groups = context.node.groups.all_groups()
    if isinstance(groups, ErrorCode):
        return ListGroupsResponse(error_code=groups)
    types = _folded(request.types_filter)
    states = _folded(request.states_filter)
    sees_all = may_on_cluster(context, "DESCRIBE", logs_denial=False)
    return ListGroupsResponse(
        groups=[
            _listed(group)
            for group in groups
            if (not types or group.type in types)
            and (not states or group.state.lower() in states)
            and (sees_all or context.authorize("DESCRIBE", "GROUP", group.group_id, logs_denial=False))
        ]
    )


def _folded(names: Sequence[str]) -> set[str]:
    return {name.strip().lower() for name in names}


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.type,
    )
