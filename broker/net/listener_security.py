"""What a listener asks of its clients before it serves them: TLS, SASL, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.net.authentication import TOKEN_BYTES_MAX, SaslAuthentication
from broker.security.principals import ANONYMOUS, user
from protocol.slotted import slotted

if TYPE_CHECKING:
    import ssl

    from broker.net.connection import Connection
    from broker.security.sasl.authenticator import Mechanisms


@slotted
class ListenerSecurity:
    """Of one listener."""

    clock: Clock
    tls: Callable[[], ssl.SSLContext] | None = None
    """The context for the next connection; None: the listener has no TLS."""
    principal_of: Callable[[bytes], str] | None = None
    """The name of a client, of its certificate (DER)."""
    mechanisms: Mechanisms | None = None
    """None: the listener has no SASL."""
    failure_delay_ms: int = 100
    token_bytes_max: int = TOKEN_BYTES_MAX

    def begin(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and shaken hands by TLS if there is any."""
        if self.mechanisms is not None:
            connection.authentication = connection.client.authentication = SaslAuthentication(
                connection,
                self.mechanisms,
                self.clock,
                failure_delay_ms=self.failure_delay_ms,
                token_bytes_max=self.token_bytes_max,
            )
        elif self.principal_of is not None:
            connection.principal = self._principal(transport)

    def _principal(self, transport: asyncio.BaseTransport) -> str:
        """Who has shown no certificate is anonymous (ssl.client.auth=none, requested)."""
        assert self.principal_of is not None
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        return ANONYMOUS if certificate is None else user(self.principal_of(certificate))
