"""Snapshots of a running broker, by its control port.

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
    """The state of a broker at one instant. As a context manager it is removed at the end of the block.

    It is gone when the broker ends. Methods raise ``NotFound`` then.
    """

    def __init__(self, client: ControlClient, fork: Fork | None = None) -> None:
        view = client.post("/v1/snapshots")
        self._client = client
        self._fork = fork
        self.id: int = view["id"]
        self.topics: tuple[str, ...] = tuple(view["topics"])
        """Those that are in it."""
        self.directory: str = view["directory"]
        """Its files on the broker's machine."""

    def restore(self) -> None:
        """Bring the broker back to it: what came after it is gone. It can be restored again.

        All connections are reset first. Rules and the trace are gone, as after ``reset``; the nodes that ran then run.
        """
        self._client.post(f"/v1/snapshots/{self.id}/restore")

    restore_async = asynchronous(restore)

    def fork(self) -> Broker:
        """A broker of its own that begins with this state, on ports of its own: start it, or use it with ``with``.

        Several can run at once. What happens in one of them is unknown to the others. Only of an `odradek.Broker`:
        ``OdradekError`` for a broker elsewhere.
        """
        if self._fork is None:
            raise OdradekError("only a broker that this program has started can be forked")
        return self._fork(Path(self.directory))

    def remove(self) -> None:
        """Remove its files. A second call does nothing."""
        with suppress(NotFound):
            self._client.delete(f"/v1/snapshots/{self.id}")

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(ControlUnreachable):  # snapshots go with their broker
            self.remove()

    def __repr__(self) -> str:
        return f"<snapshot {self.id}>"
