"""The context of a request, which is an argument of its handler."""

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
    """The client at the other end of a connection: its port, software, authentication and principal."""

    port: int = 0
    software_name: str = "unknown"
    """Name of the client's software, from ApiVersions v3 or later (KIP-511)."""
    software_version: str = "unknown"
    authentication: SaslServerAuthenticator | None = None
    """State of the SASL authentication; None on a listener without SASL."""
    principal: str = ANONYMOUS
    by_token: bool = False
    """Whether the client authenticated with a delegation token (KIP-48)."""

    def authenticated(self, evaluated: Evaluated) -> None:
        """Set the principal if ``evaluated``, the result for a SASL token, completes the authentication."""
        if evaluated.principal is not None:
            self.principal, self.by_token = evaluated.principal, evaluated.by_token


@slotted
class RequestContext:
    """The context of one request: its node, listener, version and client."""

    node: Node
    listener: Listener
    api_key: int
    api_version: int
    client_id: str | None
    peer: str
    """The client's address as Kafka writes it into group metadata: ``/127.0.0.1``."""
    connection_id: int = 0
    client: ClientInformation = field(default_factory=ClientInformation)
    principal: str = ANONYMOUS
    """The client's principal when the request arrived."""

    def authorize(
        self, operation: str, resource_type: str, resource_name: str, *, logs_denial: bool = True
    ) -> bool:
        """Whether the principal may do the operation on the resource. Always true without an authorizer.

        ``logs_denial`` is False where a denied check only filters the response, or another ACL may still allow the request.
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
        """Whether the principal may do the operation on any resource of the type (KIP-679)."""
        authorizer = self.node.authorizer
        if authorizer is None or authorizer.authorize_by_resource_type(
            self.principal, self.peer[1:], operation, resource_type
        ):
            return True
        self._log_denial(operation, resource_type)
        return False

    def _log_denial(self, operation: str, resource: str) -> None:
        """Log a denial, as Kafka's ``kafka.authorizer.logger`` does. The log's rate limit for clients applies."""
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
