"""The health socket: whether this process serves clients, for checks on its own machine.

A check connects, and reads a line that begins with `healthy`. That the loop answers is the answer: a process that hangs or
stands still leaves the check waiting. Listeners do not come into it, so it does not matter where they are, whether they
want TLS or a login, and what rules lose there.

The socket is abstract: without a file it needs no folder to write to, and it is gone with the process (Linux only).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.logging import get_logger

PAUSE_S: Final = 1.0
"""After a connection that could not be taken, for want of a descriptor say."""
_BACKLOG: Final = 16


class HealthSocket:
    """It answers from its beginning on, with what ``describe`` returns, unless another process here has the name."""

    def __init__(self, name: str, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(f"\0{name}")
        except OSError as error:
            # A second broker in one container: checks are about the first.
            get_logger().info("health checks are not answered", socket=name, reason=error.strerror)
            self._socket.close()
            return
        self._socket.listen(_BACKLOG)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._socket, self._answer)

    def _answer(self) -> None:
        try:
            check, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(PAUSE_S, self._listen)
            return
        with check, suppress(OSError):
            check.setblocking(False)
            check.send(f"healthy: {self._describe()}\n".encode())

    def close(self) -> None:
        """Checks find nothing from now on."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
