"""Results of requests that change the metadata."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from protocol.errors import ErrorCode
from protocol.slotted import slotted

RECORDS_PER_REQUEST_MAX: Final = 10_000
"""Maximum number of records that one request may write into the metadata log."""


class ApiError(Exception):
    """A change was refused. Has the error code and the message (or None) for the response."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


@slotted(frozen=True)
class CreatedTopic:
    """A topic that was created, or with validate_only would have been created."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
