"""What a handler may touch."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.node import Listener, Node


@slotted
class ClientInformation:
    """What is known of the client at the other end of a connection."""

    port: int = 0
    software_name: str = "unknown"
    """As ApiVersions has told it since version 3 (KIP-511)."""
    software_version: str = "unknown"


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
        """May the principal do this? Every principal may do everything, as in Kafka without an authorizer."""
        return True
