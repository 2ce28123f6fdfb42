"""What came of a request to change the metadata."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that exists now (or would, where the request was only to be checked)."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
