"""TLS alerts: what a client hears of a handshake that fails (RFC 8446 6).

    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    alert(accepted)                                        # in the task that then does:
    await loop.connect_accepted_socket(factory, accepted, ssl=context)

OpenSSL writes the alert, and the event loops end the connection before they have sent it. A client that hears none takes the
broker for one that is not there: Kafka's producer asks again until max.block.ms, where it should fail at once.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final, cast

_client: Final[ContextVar[socket.socket | None]] = ContextVar("client", default=None)


def alert(client: socket.socket) -> None:
    """The handshake that this task begins is with ``client``."""
    _client.set(client)


class AlertingObject(ssl.SSLObject):
    """One side of a connection."""

    outgoing: ssl.MemoryBIO
    client: socket.socket | None = None
    """None: there is none to be told, or not any more."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self._send_alert()
            raise
        self.client = None

    def _send_alert(self) -> None:
        if self.client is not None:
            # What the loop has written before it lies in the socket's buffer, or there would be no failure yet.
            with contextlib.suppress(OSError):
                self.client.send(self.outgoing.read())
            self.client = None


class AlertingContext(ssl.SSLContext):
    """Of a listener."""

    sslobject_class = AlertingObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any
    ) -> AlertingObject:
        found = cast(AlertingObject, super().wrap_bio(incoming, outgoing, *more, **named))
        found.outgoing, found.client = outgoing, _client.get()
        return found
