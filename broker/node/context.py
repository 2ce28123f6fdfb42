"""What a handler may touch."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.security.principals import ANONYMOUS
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.node import Listener, Node
    from broker.security.sasl.authenticator import Evaluated, SaslServerAuthenticator


log = get_logger()


@slotted
class ClientInformation:
    """What is known of the client at the other end of a connection."""

    port: int = 0
    software_name: str = "unknown"
    """As ApiVersions has told it since version 3 (KIP-511)."""
    software_version: str = "unknown"
    authentication: SaslServerAuthenticator | None = None
    """None on a listener without SASL."""
    principal: str = ANONYMOUS
    by_token: bool = False
    """Its principal has logged in with a delegation token (KIP-48)."""

    def authenticated(self, evaluated: Evaluated) -> None:
        """Take over what a token has brought: the principal, if that was the last one of its exchange."""
        if evaluated.principal is not None:
            self.principal, self.by_token = evaluated.principal, evaluated.by_token


@slotted
class RequestContext:
    """The circumstances of one request: where it arrived, who sent it, which version it speaks."""

    node: Node
    listener: Listener
    api_key: int
    api_version: int
    client_id: str | None
    peer: str
    """The peer's address as Kafka writes it into group metadata: ``/127.0.0.1``."""
    connection_id: int = 0
    client: ClientInformation = field(default_factory=ClientInformation)
    principal: str = ANONYMOUS
    """That of the client when the request came."""

    def authorize(
        self, operation: str, resource_type: str, resource_name: str, *, logs_denial: bool = True
    ) -> bool:
        """May the principal do this? Without an authorizer every principal may do everything.

        ``logs_denial``: a denial is a refusal, and not only less to be told, or one of several ways to a right.
        """
        authorizer = self.node.authorizer
        if authorizer is None or authorizer.authorize(
            self.principal, self.peer[1:], operation, resource_type, resource_name
        ):
            return True
        if logs_denial:
            self._log_denial(operation, f"{resource_type}:{resource_name}")
        return False

    def authorize_by_resource_type(self, operation: str, resource_type: str) -> bool:
        """May the principal do this to any resource of the type (KIP-679)?"""
        authorizer = self.node.authorizer
        if authorizer is None or authorizer.authorize_by_resource_type(
            self.principal, self.peer[1:], operation, resource_type
        ):
            return True
        self._log_denial(operation, resource_type)
        return False

    def _log_denial(self, operation: str, resource: str) -> None:
        """What Kafka's ``kafka.authorizer.logger`` says; the rate limit of lines about clients holds for it, too."""
        log.info(
            "authorization denied",
            principal=self.principal,
            operation=operation,
            resource=resource,
            peer=self.peer[1:],
            client_id=self.client_id,
            api_key=self.api_key,
            connection=self.connection_id,
        )
