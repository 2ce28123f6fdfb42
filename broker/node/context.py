"""What a handler may touch."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from protocol.slotted import slotted

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker.node import Listener, Node
    from broker.security.sasl.authenticator import SaslServerAuthenticator


class Authentication(Protocol):
    """How the client of a connection says who it is, by SASL."""

    sasl: SaslServerAuthenticator

    def delay_failure(self) -> Awaitable[None]:
        """Let connection.failed.authentication.delay.ms pass: a client that guesses must not be quick."""
        ...


@slotted
class ClientInformation:
    """What is known of the client at the other end of a connection."""

    port: int = 0
    software_name: str = "unknown"
    """As ApiVersions has told it since version 3 (KIP-511)."""
    software_version: str = "unknown"
    authentication: Authentication | None = None
    """None on a listener without SASL."""
    by_token: bool = False
    """Its principal has logged in with a delegation token (KIP-48)."""


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
    principal: str = "User:ANONYMOUS"

    def authorize(self, operation: str, resource_type: str, resource_name: str) -> bool:
        """May the principal do this? Without an authorizer every principal may do everything."""
        authorizer = self.node.authorizer
        if authorizer is None:
            return True
        return authorizer.authorize(self.principal, self.peer[1:], operation, resource_type, resource_name)

    def authorize_by_resource_type(self, operation: str, resource_type: str) -> bool:
        """May the principal do this to any resource of the type (KIP-679)?"""
        authorizer = self.node.authorizer
        if authorizer is None:
            return True
        return authorizer.authorize_by_resource_type(self.principal, self.peer[1:], operation, resource_type)
