"""Operations on snapshots: save the state of the whole broker, and restore it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from broker.cluster import StartError
from lab.cluster.snapshots import NoSuchSnapshot, Snapshot, SnapshotRefused
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control
from storage.files import StorageError


class SnapshotView(View):
    id: int
    directory: str
    """Data directory of the snapshot on the broker's machine. Another broker may start on a copy of it."""
    topics: list[str]
    nodes: list[int]
    """Ids of the nodes that ran at the snapshot. These nodes run again after a restore."""


class SnapshotsView(View):
    snapshots: list[SnapshotView]


class OneSnapshot(Given):
    snapshot_id: Annotated[int, Meta(ge=0, le=2**53 - 1, description="The id of a snapshot.")]


_EXAMPLE: Final[dict[str, Any]] = {
    "id": 1,
    "directory": "/data/.snapshots/1",
    "topics": ["__transaction_state", "orders"],
    "nodes": [1, 2, 3],
}


@operation("GET", "/v1/snapshots", answer_example={"snapshots": [_EXAMPLE]})
async def list_snapshots(control: Control) -> SnapshotsView:
    """List the snapshots that were taken and not removed."""
    return SnapshotsView(snapshots=[_view(each) for each in control.snapshots.list()])


@operation("POST", "/v1/snapshots", answer_example=_EXAMPLE, may_wait=True)
async def take_snapshot(control: Control) -> SnapshotView:
    """Take a snapshot of all nodes at one instant: records, transactions, groups, topics, settings, clock.

    Clients are not affected. Snapshots are removed when the broker stops.
    """
    try:
        return _view(await control.snapshots.take())
    except (SnapshotRefused, StorageError) as error:
        raise HttpError(409, str(error)) from None


@operation("POST", "/v1/snapshots/{snapshot_id}/restore", answer_example=_EXAMPLE, may_wait=True)
async def restore_snapshot(control: Control, params: OneSnapshot) -> SnapshotView:
    """Restore a snapshot. Everything that happened after the snapshot is removed. The snapshot stays.

    All connections are reset first. Rules and trace are removed, as by a reset, and the rules of the start are added again.
    Topics keep their ids. No producer id is issued twice. Real time is not restored: timeouts count from when they began.
    """

    try:
        await control.snapshots.restore(params.snapshot_id, control.forget, control.add_first_rules)
    except NoSuchSnapshot as error:
        raise HttpError(404, str(error)) from None
    except StartError as error:
        raise HttpError(409, f"the snapshot cannot be restored: {error}") from None
    return _view(control.snapshots.get(params.snapshot_id))


@operation("DELETE", "/v1/snapshots/{snapshot_id}", answer_example=_EXAMPLE, may_wait=True)
async def remove_snapshot(control: Control, params: OneSnapshot) -> SnapshotView:
    """Remove a snapshot and its files."""
    try:
        view = _view(control.snapshots.get(params.snapshot_id))
        await control.snapshots.remove(params.snapshot_id)
    except NoSuchSnapshot as error:
        raise HttpError(404, str(error)) from None
    return view


def _view(snapshot: Snapshot) -> SnapshotView:
    return SnapshotView(
        id=snapshot.id,
        directory=str(snapshot.path),
        topics=sorted(snapshot.metadata.topics),
        nodes=list(snapshot.running),
    )
