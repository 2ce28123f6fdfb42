"""The loop over groups shared by DescribeGroups and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker.loop.slices import each
from broker.node.context import RequestContext
from broker.requests.metadata_views import authorized_operations
from protocol.errors import NONE, ErrorCode
from storage.steps import Steps


class DescribedGroup(Protocol):
    """A group in the response of DescribeGroups or ConsumerGroupDescribe: the fields that both have."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=DescribedGroup)


def describe_groups(
    group_ids: Sequence[str],
    context: RequestContext,
    describe: Callable[[str, RequestContext], G],
    refuse: Callable[[str, ErrorCode], G],
    *,
    with_operations: bool,
) -> Steps[list[G]]:
    """Return the descriptions of the groups. Groups that the client may not describe come first, as in Kafka.

    ``describe`` describes a group, ``refuse`` returns the entry with the authorization error. If
    ``with_operations``, the authorized operations are added to each description without an error.
    """
    refused, described = [], []

    def answer(group_id: str) -> None:
        if not context.authorize("DESCRIBE", "GROUP", group_id):
            refused.append(refuse(group_id, ErrorCode.group_authorization_failed))
            return
        group = describe(group_id, context)
        if with_operations and group.error_code == NONE:
            group.authorized_operations = authorized_operations(context, "GROUP", group_id)
        described.append(group)

    yield from each(group_ids, answer)
    return [*refused, *described]
