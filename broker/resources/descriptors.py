"""Distribution of the process's file descriptors (RLIMIT_NOFILE) between log files, client connections and the control port.

All nodes of the process share the descriptors. When one of the three parts is used up, the others are not affected: new
clients wait until they are accepted, the control port closes the connection that was idle for longest, and logs close the
files that were used least recently.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.descriptors import SPARE_DESCRIPTORS

# Limit for open log files: beyond it, more open files save little, because few files would have to be opened again.
OPEN_FILES_MAX: Final = 16_384
CONTROL_CONNECTIONS_MAX: Final = 256
# Descriptors for everything else: standard streams, the event loop, listeners, locks, links between nodes, and files that
# are open briefly.
OTHERS: Final = 32
CLIENTS_MIN: Final = 8


class Shares(NamedTuple):
    """Maximum number of descriptors for each purpose."""

    files: int
    clients: int
    control: int


def shares(allowed: int, open_files_max: int = 0) -> Shares:
    """Divide ``allowed`` descriptors between log files, clients and the control port.

    ``open_files_max`` is odradek.open.files.max; if it is 0, log files get half of ``allowed``, at most ``OPEN_FILES_MAX``.
    """
    files = open_files_max or min(allowed // 2, OPEN_FILES_MAX)
    control = min(allowed // 16, CONTROL_CONNECTIONS_MAX)
    clients = allowed - files - control - OTHERS - SPARE_DESCRIPTORS
    return Shares(files, max(clients, CLIENTS_MIN), control)


def allowed_descriptors() -> int:
    """Soft limit for the process's file descriptors, which `server.process` has raised as far as possible."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def control_connections_max() -> int:
    """Maximum number of connections of the control port, independent of the clients' connections."""
    return shares(allowed_descriptors()).control


class ClientSlots:
    """Counts the descriptors of client connections. Only for the thread of the event loop."""

    def __init__(self, limit: int = 2**31 - 1) -> None:
        self.limit = limit
        self.open = 0
        self.arriving = 0
        """Number of sockets that are accepted but not yet assigned to a node."""
        self._waiting: dict[Callable[[], object], None] = {}

    @property
    def has_room(self) -> bool:
        return self.open + self.arriving < self.limit

    def wait(self, resume: Callable[[], object]) -> None:
        """Call ``resume`` once, as soon as a slot may be free. ``resume`` must check `has_room` again."""
        self._waiting[resume] = None

    def gone(self) -> None:
        """Free the slot of a connection that was closed."""
        self.open -= 1
        self._wake()

    def arrived(self) -> None:
        """Decrement ``arriving``: a socket was assigned to a node, which counts it in ``open``, or it failed."""
        self.arriving -= 1
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for resume in waiting:
            resume()


SLOTS: Final = ClientSlots()
"""The slots for client connections of this process; the broker sets the limit at its start."""
