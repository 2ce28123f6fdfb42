"""The interface of an authorizer."""

from __future__ import annotations

from typing import Protocol


class Authorizer(Protocol):
    """Decides whether a principal may do an operation.

    Operations and resource types have Kafka's names in capitals: `DESCRIBE_CONFIGS`, `TRANSACTIONAL_ID`.
    """

    def authorize(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Whether ``principal`` (`User:alice`) may do the operation on the resource from ``host`` (`127.0.0.1`)."""
        ...

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: str, resource_type: str
    ) -> bool:
        """Whether the principal may do the operation on any resource of the type (KIP-679)."""
        ...
