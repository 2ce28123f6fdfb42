"""Snapshots of a running broker, through its control port.

with broker.snapshot() as snapshot:
    ...
    snapshot.restore()
    with snapshot.fork() as other:
        ...
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.asynchronous import asynchronous
from odradek.control_client import ControlClient
from odradek.errors import HIDDEN_IN_TRACEBACKS, ControlUnreachable, NotFound, OdradekError

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

if TYPE_CHECKING:
    from odradek.broker import Broker

Fork = Callable[[Path], "Broker"]


class Snapshot:
    """The state of a broker at one instant.

    If it is used as a context manager, the snapshot is removed at the end of the block. A snapshot ends with its broker;
    methods then raise ``NotFound``.
    """

    def __init__(self, client: ControlClient, fork: Fork | None = None) -> None:
        view = client.post("/v1/snapshots")
        self._client = client
        self._fork = fork
        self.id: int = view["id"]
        self.topics: tuple[str, ...] = tuple(view["topics"])
        """The topics in the snapshot."""
        self.directory: str = view["directory"]
        """Directory of the snapshot's files, on the broker's machine."""

    def restore(self) -> None:
        """Return the broker to the state of the snapshot. Later changes are lost. A snapshot can be restored several times.

        Resets all connections first. Rules and the trace end, as with ``reset``. The nodes that ran at the snapshot run
        again.
        """
        self._client.post(f"/v1/snapshots/{self.id}/restore")

    restore_async = asynchronous(restore)

    def fork(self) -> Broker:
        """Return a new broker with the state of the snapshot and its own ports; start it, or use it with ``with``.

        Several forks can run at once and do not affect each other. Only an `odradek.Broker` can be forked:
        ``OdradekError`` for a broker that this program has not started.
        """
        if self._fork is None:
            raise OdradekError("only a broker that this program has started can be forked")
        return self._fork(Path(self.directory))

    def remove(self) -> None:
        """Delete the files of the snapshot. A second call does nothing."""
        with suppress(NotFound):
            self._client.delete(f"/v1/snapshots/{self.id}")

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(ControlUnreachable):  # the snapshot ended with its broker
            self.remove()

    def __repr__(self) -> str:
        return f"<snapshot {self.id}>"
