"""How the process shares its descriptors (RLIMIT_NOFILE) between the files of its logs, its clients and the control port.

All nodes of the process take from the same ones. A share that is used up must not cost another: clients wait to be accepted,
the control port closes the connection that was idle for longest, logs close files that were not used lately.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.descriptors import SPARE_DESCRIPTORS

# Of the logs: beyond that, to open a file again costs less than to keep it.
OPEN_FILES_MAX: Final = 16_384
CONTROL_CONNECTIONS_MAX: Final = 256
# Standard streams, the loop, listeners, locks, links between nodes, files that are open for a moment.
OTHERS: Final = 32
CLIENTS_MIN: Final = 8


class Shares(NamedTuple):
    """How many descriptors each may take."""

    files: int
    clients: int
    control: int


def shares(allowed: int, open_files_max: int = 0) -> Shares:
    """Of so many descriptors; ``open_files_max`` is odradek.open.files.max, 0 for half of them."""
    files = open_files_max or min(allowed // 2, OPEN_FILES_MAX)
    control = min(allowed // 16, CONTROL_CONNECTIONS_MAX)
    clients = allowed - files - control - OTHERS - SPARE_DESCRIPTORS
    return Shares(files, max(clients, CLIENTS_MIN), control)


def allowed_descriptors() -> int:
    """The limit of this process, which `server.process` has raised as far as it may."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def control_connections_max() -> int:
    """Connections of the control port at the same time. Those that the broker has for clients are not touched by it."""
    return shares(allowed_descriptors()).control


class ClientSlots:
    """The descriptors that connections of clients have. It belongs to the thread of the loop."""

    def __init__(self, limit: int = 2**31 - 1) -> None:
        self.limit = limit
        self.open = 0
        self.arriving = 0
        """Accepted, and not yet a connection of a node."""
        self._waiting: dict[Callable[[], object], None] = {}

    @property
    def has_room(self) -> bool:
        return self.open + self.arriving < self.limit

    def wait(self, resume: Callable[[], object]) -> None:
        """Call it once, when a connection has gone, or has arrived and is counted as open alone."""
        self._waiting[resume] = None

    def gone(self) -> None:
        """A connection has gone."""
        self.open -= 1
        self._wake()

    def arrived(self) -> None:
        """What was accepted is a connection now, and counted as open since; or it has failed."""
        self.arriving -= 1
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for resume in waiting:
            resume()


SLOTS: Final = ClientSlots()
"""Of this process; the broker sets the limit at its start."""
