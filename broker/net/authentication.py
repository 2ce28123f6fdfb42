"""SASL on a connection: which of its requests may be handled, and tokens that come without a request around them.

authentication = SaslAuthentication(connection, mechanisms, clock, failure_delay_ms=100)
route = authentication.checked(route)  # before each request
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from copy import copy
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Clock, Domain
from broker.logging import get_logger
from broker.net.frame_buffers import TOKEN_BUFFER_START_BYTES, FrameBuffers
from broker.net.holds import CLOSED, HELD
from broker.net.served_connection import ServedConnection
from broker.requests.api import CloseConnection
from broker.security.sasl.authenticator import (
    Evaluated,
    Mechanisms,
    NotAuthenticated,
    SaslServerAuthenticator,
)
from broker.security.sasl.mechanism import (
    AUTHENTICATION_FAILED,
    NOT_AUTHENTICATED,
    AuthenticationFailed,
)
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.net.routes import Route
    from broker.node.context import RequestContext

log = get_logger()
SIZE: Final = Struct(">i")
TOKEN_BUFFERS: Final = FrameBuffers(TOKEN_BUFFER_START_BYTES)
TOKEN_BYTES_MAX: Final = 524_288
"""The default of sasl.server.max.receive.size."""
TOKEN_BYTES_AT_ONCE: Final = 16 * 1024
"""A larger token takes milliseconds: half a megabyte some five. One is evaluated in a turn of the loop, and the next turn is
left to others. Identity providers issue tokens of one or two KiB."""


class SaslAuthentication:
    """Of one connection; it lasts as long, since a client authenticates again (KIP-368)."""

    def __init__(
        self,
        connection: ServedConnection,
        mechanisms: Mechanisms,
        clock: Clock,
        *,
        failure_delay_ms: int,
        token_bytes_max: int = TOKEN_BYTES_MAX,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._failure_delay_ms = failure_delay_ms
        self._token_bytes_max = token_bytes_max
        self._exchanges: set[asyncio.Task[None]] = set()
        self.sasl = SaslServerAuthenticator(
            mechanisms,
            lambda: clock.now_ms(Domain.CONNECTIONS),
            lambda principal, by_token: connection.authenticated(principal, by_token=by_token),
        )

    @property
    def frame_bytes_max(self) -> int | None:
        """How large a frame may be; None: as for all clients."""
        return None if self.sasl.is_complete else self._token_bytes_max

    @property
    def frame_buffers(self) -> FrameBuffers:
        """Where a frame begins that has come in part."""
        return self._connection._shared.frame_buffers if self.sasl.is_complete else TOKEN_BUFFERS

    @property
    def takes_raw_tokens(self) -> bool:
        return self.sasl.takes_raw_tokens

    def checked(self, route: Route) -> Route:
        """The route of a request that may be handled, or one that refuses it; `CloseConnection` where there is no answer."""
        try:
            if self.sasl.check(route.api.key, route.api.name):
                return route
        except NotAuthenticated as refusal:
            raise CloseConnection(NOT_AUTHENTICATED, error=str(refusal)) from None
        refusing = copy(route)
        refusing.handler = self._refuse
        return refusing

    async def _refuse(self, request: Any, context: RequestContext) -> None:
        """During an exchange each request but SaslAuthenticate is out of order, and the end."""
        # Only a client that breaks the order pays for the import.
        from broker.requests.error_answers import error_answer

        key, version = context.api_key, context.api_version
        answer = error_answer(key, version, request, ErrorCode.illegal_sasl_state)
        await self.delay_failure()
        told = f"Unexpected Kafka request {key} during SASL authentication."
        if refused := self.sasl.refused:
            told += f" The client's token is refused: {refused}"
        raise CloseConnection(NOT_AUTHENTICATED, answer, error=told)

    def evaluate(self, token: bytes) -> Evaluated | Awaitable[Evaluated]:
        """What a token of the client brings; `AuthenticationFailed` is the end."""
        if len(token) <= TOKEN_BYTES_AT_ONCE:
            return self.sasl.evaluate(token)
        return self._evaluate_in_turn(token)

    async def _evaluate_in_turn(self, token: bytes) -> Evaluated:
        # Many that come at once would hold up everyone else's requests together.
        async with self._connection._shared.large_tokens:
            try:
                evaluated = self.sasl.evaluate(token)
            finally:
                await asyncio.sleep(0)  # the others' turn
        return evaluated if isinstance(evaluated, Evaluated) else await evaluated

    async def delay_failure(self) -> None:
        """Let connection.failed.authentication.delay.ms pass."""
        passed = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not passed.done():
                passed.set_result(None)

        timer = self._clock.call_later_ms(self._failure_delay_ms, end, Domain.CONNECTIONS)
        try:
            await passed
        finally:
            timer.cancel()

    def take(self, token: bytes) -> None:
        """A token without a request around it: the answer is one, too (SaslHandshake v0)."""
        self._connection._holds |= HELD
        task = asyncio.get_running_loop().create_task(self._exchange(token))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, token: bytes) -> None:
        try:
            evaluated = self.evaluate(token)
            if not isinstance(evaluated, Evaluated):
                evaluated = await evaluated
        except AuthenticationFailed as failure:
            await self.delay_failure()
            self._connection.close(AUTHENTICATION_FAILED, mechanism=self.sasl.mechanism, error=failure.reason)
        except Exception as error:
            log.error(
                "request failed", api="token", connection=self._connection.connection_id, exc_info=error
            )
            self._connection.close("the request failed", api="token")
        else:
            self._write(evaluated.answer)

    def _write(self, token: bytes) -> None:
        connection = self._connection
        if not connection._holds & CLOSED:
            connection._answers += [SIZE.pack(len(token)), token]
            connection._answers_bytes += SIZE.size + len(token)
            connection.write_answers()
            connection._lift(HELD)

    def end(self) -> None:
        """The connection has ended."""
        for task in self._exchanges:
            task.cancel()
