"""What an authorizer is to the rest of the broker."""

from __future__ import annotations

from typing import Protocol


class Authorizer(Protocol):
    """Operations and resource types are Kafka's words in capitals: `DESCRIBE_CONFIGS`, `TRANSACTIONAL_ID`."""

    def authorize(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """May ``principal`` (`User:alice`) do this from ``host`` (`127.0.0.1`)?"""
        ...

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: str, resource_type: str
    ) -> bool:
        """May it do this to any resource of the type (KIP-679)?"""
        ...
