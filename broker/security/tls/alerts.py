"""Sends the TLS alert of a failed handshake to the client (RFC 8446 6).

    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    alert(accepted)                                        # in the task that then calls:
    await loop.connect_accepted_socket(factory, accepted, ssl=context)

OpenSSL writes the alert, but the event loops close the connection before they have sent it. A client that gets no alert
treats the broker as unavailable: Kafka's producer retries until max.block.ms, although it should fail at once.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final, cast

_client: Final[ContextVar[socket.socket | None]] = ContextVar("client", default=None)


def alert(client: socket.socket) -> None:
    """Set the socket that gets the TLS alert if the next handshake of the current task fails."""
    _client.set(client)


class AlertingObject(ssl.SSLObject):
    """The server side of a TLS connection, which sends the alert if the handshake fails."""

    outgoing: ssl.MemoryBIO
    client: socket.socket | None = None
    """The socket to which an alert is sent; None if `alert` was not called, or after the handshake."""

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
            # All earlier output of the loop has been sent, since the failure is a reaction to the client's response to it.
            with contextlib.suppress(OSError):
                self.client.send(self.outgoing.read())
            self.client = None


class AlertingContext(ssl.SSLContext):
    """TLS context of a listener, whose connections are of type `AlertingObject`."""

    sslobject_class = AlertingObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any
    ) -> AlertingObject:
        found = cast(AlertingObject, super().wrap_bio(incoming, outgoing, *more, **named))
        found.outgoing, found.client = outgoing, _client.get()
        return found
