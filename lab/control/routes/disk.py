"""Operations for disk failures of a node: losing what was not synced, and damaging files."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from broker.cluster import NoSuchNode
from lab.cluster.disk import NoSuchBatch, damage, lose_power
from lab.control.access import Role
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control
from lab.control.routes.cluster import NODE_EXAMPLE, NodeView, OneNode, node_view
from storage.files import StorageError


class Damage(Given):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Annotated[int, Meta(ge=0, le=2**53 - 1, description="An offset in the batch to damage.")]
    how: Literal["flip", "tear"]
    """flip changes one byte of the batch, so that its CRC is wrong; tear cuts the file in the middle of the batch."""


class DamageView(View):
    file: str
    """The path of the file on the broker's machine."""
    position: int
    """Position of the batch in the file, in bytes."""
    bytes: int
    """Size of the batch in bytes."""
    first_offset: int
    last_offset: int


_EXAMPLE: Final[dict[str, Any]] = {
    "file": "/data/node-2/orders-0/00000000000000000000.log",
    "position": 0,
    "bytes": 71,
    "first_offset": 0,
    "last_offset": 0,
}


@operation(
    "POST",
    "/v1/nodes/{node_id}/lose-power",
    answer_example={**NODE_EXAMPLE, "state": "killed"},
    may_wait=True,
    role=Role.STOP,
)
async def lose_power_of_node(control: Control, params: OneNode) -> NodeView:
    """Simulate a power loss of a node: it is killed, and its logs are cut to what was last synced to the disk.

    The response comes after the partitions that it led have new leaders.
    """
    try:
        await lose_power(control.cluster, params.node_id)
    except NoSuchNode as error:
        raise HttpError(_status(control, params), str(error)) from None
    return node_view(control.cluster, control.cluster.nodes[params.node_id])


@operation(
    "POST",
    "/v1/nodes/{node_id}/damage",
    body_example={"topic": "orders", "partition": 0, "offset": 0, "how": "flip"},
    answer_example=_EXAMPLE,
    may_wait=True,
    role=Role.STOP,
)
async def damage_files(control: Control, params: OneNode, body: Damage) -> DamageView:
    """Damage a batch in the files of a stopped or killed node: flip one of its bytes, or cut the file in the middle of
    the batch.

    The node finds the damage at its next start.
    """
    try:
        found = await damage(
            control.cluster, params.node_id, body.topic, body.partition, offset=body.offset, how=body.how
        )
    except NoSuchNode as error:
        raise HttpError(_status(control, params), str(error)) from None
    except NoSuchBatch as error:
        raise HttpError(404, str(error)) from None
    except StorageError as error:
        raise HttpError(409, str(error)) from None
    return DamageView(
        file=str(found.path),
        position=found.position,
        bytes=found.size,
        first_offset=found.first_offset,
        last_offset=found.last_offset,
    )


def _status(control: Control, params: OneNode) -> int:
    """The HTTP status for a call on a node: 404 if the node is unknown, 409 if it is in a wrong state for the call."""
    return 409 if params.node_id in control.cluster.nodes else 404
