"""The health socket, for health checks on the same machine: it responds whether this process serves clients.

A check connects and reads a line that begins with `healthy`. The response itself proves that the event loop runs: a process
that hangs or is stopped does not respond. The listeners are not involved, so it does not matter where they are, whether they
need TLS or a login, and which rules lose requests there.

The socket is abstract (Linux only): it has no file, needs no writable folder, and disappears with the process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.logging import get_logger

PAUSE_S: Final = 1.0
"""Seconds until the next attempt if a connection could not be accepted, for instance without a descriptor."""
_BACKLOG: Final = 16


class HealthSocket:
    """The socket that responds to checks with the text of ``describe``. If another process already uses the name, this
    socket is closed, and the other process responds to checks.
    """

    def __init__(self, name: str, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(f"\0{name}")
        except OSError as error:
            # Another broker in the container has this socket, and responds to the checks.
            get_logger().info("health socket could not be opened", socket=name, reason=error.strerror)
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
        """Stop listening. Later checks fail."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
