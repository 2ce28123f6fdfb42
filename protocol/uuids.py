"""Kafka's spelling of a uuid (``org.apache.kafka.common.Uuid``): 22 characters of base64 for URLs, without padding."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from uuid import UUID


def uuid_text(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


@lru_cache(maxsize=1024)
def parse_uuid(text: str) -> UUID:
    """Parse Kafka's text form of a uuid. Raises ``ValueError`` for any other text."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
