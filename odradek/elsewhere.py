"""Find missing values in other topics: the client may have misspelt the topic's name, so that auto-creation created another
topic.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any, Final

from odradek.control_client import ControlClient
from odradek.errors import ControlRefused
from odradek.topics import read_records

TOPICS_MAX: Final = 10
RECORDS_MAX: Final = 1000
"""Maximum number of offsets of a topic that is searched; larger topics are skipped."""


def found_elsewhere(
    client: ControlClient, topic: str, values: Collection[str | bytes | None]
) -> dict[str | bytes | None, str]:
    """The values among ``values`` that another topic contains, each with the place of its first record there, such as
    ``"ordres-0 @3"``.

    Reads only a few small topics, beginning with those whose names are most similar.
    """
    found: dict[str | bytes | None, str] = {}
    for name in _nearest_first(client, topic) if values else []:
        with suppress(ControlRefused):  # the topic was deleted, or a partition has no leader
            for record in read_records(client, name, "read_uncommitted").records:
                if record.value in values:
                    outcome = f" ({record.outcome})" if record.outcome in ("aborted", "open") else ""
                    found.setdefault(record.value, record.place + outcome)
        if len(found) == len(set(values)):
            break
    return found


def _nearest_first(client: ControlClient, topic: str) -> list[str]:
    topics = client.get("/v1/topics")["topics"]
    names = [each["name"] for each in topics if each["name"] != topic and 0 < _size(each) <= RECORDS_MAX]
    names.sort(key=lambda name: SequenceMatcher(None, topic, name).ratio(), reverse=True)
    return names[:TOPICS_MAX]


def _size(topic: dict[str, Any]) -> int:
    """High watermark minus log start offset, summed over the partitions: an upper bound of the number of records."""
    return sum(each["high_watermark"] - each["log_start_offset"] for each in topic["partitions"])
