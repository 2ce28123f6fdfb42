"""Security of one listener: TLS, SASL, or both, for its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from broker.clock import Clock, Domain
from broker.clock.sleeping import Sleep
from broker.logging import get_logger
from broker.net.served_connection import ServedConnection
from broker.requests.api import CloseConnection
from broker.security.sasl.authenticator import (
    TOKEN_BYTES_MAX,
    Mechanisms,
    NotAuthenticated,
    SaslServerAuthenticator,
)
from broker.security.sasl.mechanism import AUTHENTICATION_FAILED, NOT_AUTHENTICATED, AuthenticationFailed
from broker.security.tls.principal_mapping import MappingFailed
from protocol.errors import ErrorCode
from protocol.slotted import slotted

if TYPE_CHECKING:
    import ssl

    from broker.net.routes import Route
    from broker.node.context import RequestContext

log = get_logger()


@slotted
class ListenerSecurity:
    """TLS and SASL of one listener: their settings, and the steps of its connections that use them."""

    clock: Clock
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context for the next connection; None if the listener has no TLS."""
    principal_of: Callable[[bytes | None], str] | None = None
    """Returns the principal for a client's certificate (DER, or None); raises `MappingFailed` if no rule matches."""
    mechanisms: Mechanisms | None = None
    """The SASL mechanisms; None if the listener has no SASL."""
    failure_delay_ms: int = 100
    token_bytes_max: int = TOKEN_BYTES_MAX

    def begin(
        self,
        connection: ServedConnection,
        transport: asyncio.BaseTransport,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """Start authentication on a new connection, after its TLS handshake if any.

        ``turn`` waits until this connection may evaluate a large token.
        """
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and self._has_expired(tls):
            connection.close(AUTHENTICATION_FAILED, error="the client's certificate has expired")
        elif self.mechanisms is not None:
            connection.client.authentication = SaslServerAuthenticator(
                self.mechanisms,
                partial(self.clock.now_ms, Domain.CONNECTIONS),
                turn=turn,
                delay=partial(Sleep, self.clock, self.failure_delay_ms, Domain.CONNECTIONS),
                token_bytes_max=self.token_bytes_max,
            )
        elif self.principal_of is not None:
            try:
                connection.client.principal = self.principal_of(tls and tls.getpeercert(binary_form=True))
            except MappingFailed as error:
                connection.close(AUTHENTICATION_FAILED, error=str(error))

    def _has_expired(self, tls: ssl.SSLObject) -> bool:
        """Whether the client certificate has expired by the broker's clock, which may be ahead of the system's."""
        from broker.security.tls.ageing import has_expired

        return has_expired(tls, self.clock.now_ms(Domain.CONNECTIONS))

    def checked(self, authentication: SaslServerAuthenticator, route: Route) -> Route:
        """Return the route of a request if SASL permits it now, else a route that rejects it.

        Raises `CloseConnection` if the connection must close without a response.
        """
        try:
            is_in_order = authentication.check(route.api.key, route.api.name)
        except NotAuthenticated as refusal:
            raise CloseConnection(NOT_AUTHENTICATED, error=str(refusal)) from None
        return route if is_in_order else route.handled_by(_refuse_out_of_order)

    async def answer_token(self, connection: ServedConnection, token: bytes) -> None:
        """Evaluate a token that has no request header, and send a response token without a header (SaslHandshake v0)."""
        authentication = connection.client.authentication
        try:
            evaluated = await authentication.evaluate(token)
        except AuthenticationFailed as failure:
            await authentication.delay_failure()
            if not connection.is_closed:
                facts = {"mechanism": authentication.mechanism, "error": failure.reason}
                connection.close(AUTHENTICATION_FAILED, **facts)
        except Exception as error:
            log.error("request failed", api="token", connection=connection.connection_id, exc_info=error)
            connection.close("the request failed", api="token")
        else:
            connection.client.authenticated(evaluated)
            connection.answer_token(evaluated.response)


async def _refuse_out_of_order(request: Any, context: RequestContext) -> NoReturn:
    """Reject a request during a SASL exchange, in which only SaslAuthenticate is allowed, and close the connection."""
    # Imported here, since only misbehaving clients need it.
    from broker.requests.error_answers import error_answer

    authentication = context.client.authentication
    assert authentication is not None, "it has found the request out of order"
    key, version = context.api_key, context.api_version
    answer = error_answer(key, version, request, ErrorCode.illegal_sasl_state)
    await authentication.delay_failure()
    told = f"Unexpected Kafka request {key} during SASL authentication."
    if refused := authentication.refused:
        told += f" The client's token is refused: {refused}"
    raise CloseConnection(NOT_AUTHENTICATED, answer, error=told)
