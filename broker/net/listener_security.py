"""What a listener asks of its clients before it serves them: TLS, SASL, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.net.authentication import TOKEN_BYTES_MAX, SaslAuthentication
from broker.net.served_connection import ServedConnection
from broker.security.sasl.mechanism import AUTHENTICATION_FAILED
from broker.security.tls.principal_mapping import MappingFailed
from protocol.slotted import slotted

if TYPE_CHECKING:
    import ssl

    from broker.security.sasl.authenticator import Mechanisms


@slotted
class ListenerSecurity:
    """Of one listener."""

    clock: Clock
    tls: Callable[[], ssl.SSLContext] | None = None
    """The context for the next connection; None: the listener has no TLS."""
    principal_of: Callable[[bytes | None], str] | None = None
    """The principal of a client, of its certificate (DER) if it has shown one; `MappingFailed` if no rule fits."""
    mechanisms: Mechanisms | None = None
    """None: the listener has no SASL."""
    failure_delay_ms: int = 100
    token_bytes_max: int = TOKEN_BYTES_MAX

    def begin(self, connection: ServedConnection, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and shaken hands by TLS if there is any."""
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and self._has_expired(tls):
            connection.close(AUTHENTICATION_FAILED, error="the client's certificate has expired")
        elif self.mechanisms is not None:
            connection.authentication = connection.client.authentication = SaslAuthentication(
                connection,
                self.mechanisms,
                self.clock,
                failure_delay_ms=self.failure_delay_ms,
                token_bytes_max=self.token_bytes_max,
            )
        elif self.principal_of is not None:
            try:
                connection.principal = self.principal_of(tls and tls.getpeercert(binary_form=True))
            except MappingFailed as error:
                connection.close(AUTHENTICATION_FAILED, error=str(error))

    def _has_expired(self, tls: ssl.SSLObject) -> bool:
        """By the broker's clock, which may be ahead of the one that the handshake has asked."""
        from broker.security.tls.ageing import has_expired

        return has_expired(tls, self.clock.now_ms(Domain.CONNECTIONS))
