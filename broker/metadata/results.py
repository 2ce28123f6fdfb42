"""What came of a request to change the metadata."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from protocol.errors import ErrorCode
from protocol.slotted import slotted

RECORDS_PER_REQUEST_MAX: Final = 10_000
"""What one request may write into the metadata log."""


class ApiError(Exception):
    """A change that is not made: the code and the words (or null) to answer with."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


@slotted(frozen=True)
class CreatedTopic:
    """A topic that exists now (or would, where the request was only to be checked)."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
