"""Normalises decoded responses for comparison.

Ids become symbols by order of appearance. Times become relative to the story's own clock. Error messages are reduced to
null, empty or text. Lists whose order Kafka does not define are sorted.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from tests.differential.batches import read_batches, text

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Member ids that the broker creates in consumer groups (Kafka's ``Uuid`` in base64).
BASE64_ID = re.compile(r"(?=.*[A-Z])[A-Za-z0-9_-]{22}")
MESSAGES = {"error_message", "batch_index_error_message", "message", "documentation"}
BY_NAME = {"configs": "name", "supported_features": "name", "finalized_features": "name"}
ORDERED_APIS = {"fetch", "describe_topic_partitions"}
ORDERED_LISTS = {
    "acquired_records",
    "aborted_transactions",
    "batches",
    "cluster_nodes",
    "state_batches",
    "synonyms",
}
SORT_BY = (
    ("name", "topic", "topic_name", "group_id", "key", "resource_name", "transactional_id"),
    ("partition_index", "partition", "index", "broker_id", "node_id", "batch_index", "producer_id"),
)
MINUTE = 60_000


class Normal:
    """The symbols of one run of a story. An id has the same symbol in all its responses."""

    def __init__(self, prefix: str, ports: Mapping[int, str], base_time: int) -> None:
        self.prefix, self.ports, self.base_time = prefix, ports, base_time
        self.symbols: dict[tuple[str, Any], str] = {}

    def symbol(self, kind: str, value: Any) -> str:
        count = sum(1 for known, _ in self.symbols if known == kind)
        return self.symbols.setdefault((kind, value), f"{kind}-{count + 1}")

    def answer(self, api: str, body: Any) -> Any:
        return self.value(self._trim(api, body), "", api not in ORDERED_APIS)

    def _trim(self, api: str, body: Any) -> Any:
        """Drop the entries of other stories from lists of all resources."""
        if api == "metadata":
            return body | {
                "topics": [self._metadata_topic(t) for t in body["topics"] if self._own(t["name"])]
            }
        if api == "describe_topic_partitions":
            return body | {"topics": [t for t in body["topics"] if self._own(t["name"])]}
        if api == "list_groups":
            return body | {"groups": [g for g in body["groups"] if g["group_id"].startswith(self.prefix)]}
        if api == "describe_log_dirs":
            return body | {"results": [self._log_dir(row) for row in body["results"]]}
        if api == "list_transactions":
            mine = [
                row for row in body["transaction_states"] if row["transactional_id"].startswith(self.prefix)
            ]
            return body | {"transaction_states": mine}
        return body

    def _log_dir(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"topics": [topic for topic in row["topics"] if self._own(topic["name"])]}

    def _own(self, name: str | None) -> bool:
        return not name or not re.match(r"[a-z]+-[a-z0-9]", name) or name.startswith(self.prefix)

    @staticmethod
    def _metadata_topic(topic: dict[str, Any]) -> dict[str, Any]:
        if (topic["name"] or "").startswith("__"):
            return topic | {"partitions": len(topic["partitions"])}
        return topic

    def value(self, value: Any, field: str, sort: bool) -> Any:
        if isinstance(value, dict):
            return {name: self.value(inner, name, sort) for name, inner in value.items()}
        if isinstance(value, list):
            return self._list(value, field, sort)
        return self._scalar(value, field)

    def _list(self, values: list[Any], field: str, sort: bool) -> Any:
        if field == "api_keys":
            rows = sorted(values, key=lambda v: v["api_key"])
            return {str(v["api_key"]): f"{v['min_version']}-{v['max_version']}" for v in rows}
        if field in BY_NAME and all(isinstance(v, dict) and BY_NAME[field] in v for v in values):
            name = BY_NAME[field]
            rows = sorted(values, key=lambda v: v[name])
            return {
                str(v[name]): self.value({k: i for k, i in v.items() if k != name}, "", sort) for v in rows
            }
        if sort and field not in ORDERED_LISTS and values and isinstance(values[0], dict):
            values = sorted(values, key=self._sort_key)
        if sort and field == "subscribed_topic_names":
            values = sorted(values)
        if sort and field == "partitions" and all(isinstance(v, int) for v in values):
            values = sorted(values)
        return [self.value(v, field, sort) for v in values]

    def _sort_key(self, value: dict[str, Any]) -> tuple[Any, ...]:
        names = next((str(value[n]) for n in SORT_BY[0] if value.get(n) is not None), "")
        numbers = next((value[n] for n in SORT_BY[1] if n in value), 0)
        known = self.symbols.get(("topic", value.get("topic_id")), "~")
        plain = {k: v for k, v in value.items() if isinstance(v, int | str | bytes)}
        return (
            names,
            known,
            numbers,
            UUID.sub(self._known_uuid, json.dumps(plain, default=repr, sort_keys=True)),
        )

    def _known_uuid(self, match: re.Match[str]) -> str:
        return self.symbols.get(("uuid", match.group()), "~")

    def learn(self, text: str) -> None:
        """Assign symbols to the ids in a text."""
        self._string(text, "")

    def _scalar(self, value: Any, field: str) -> Any:
        if isinstance(value, uuid.UUID):
            return self.symbol("topic", value)
        if isinstance(value, bytes):
            return read_or_text(self, value, field)
        if isinstance(value, str):
            return self._string(value, field)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(value, field)
        return value

    def _string(self, value: str, field: str) -> str:
        if field in MESSAGES:
            return value if value in ("", "NONE") else "(text)"
        if field in ("cluster_id", "log_dir"):
            return field.partition("_")[0]
        if field in ("host", "client_host"):
            return "host" if value.strip("/") in ("127.0.0.1", "localhost") else value
        if field == "member_id" and BASE64_ID.fullmatch(value):
            return self.symbol("member", value)
        value = value.replace(self.prefix, "~")
        return UUID.sub(lambda match: self.symbol("uuid", match.group()), value)

    def _number(self, value: int, field: str) -> Any:
        if field == "producer_id" and value >= 0:
            return self.symbol("pid", value)
        if field == "session_id" and value > 0:
            return self.symbol("session", value)
        if field == "port":
            return self.ports.get(value, value)
        if field == "finalized_features_epoch":
            return "offset"
        if field in ("total_bytes", "usable_bytes") and value > 0:
            return "bytes"
        return self._time(value) if 10**12 < value < 10**13 else value

    def _time(self, value: int) -> Any:
        """A timestamp as "clock" if it is from the broker's clock, otherwise as "t0" with the offset from the base
        time.

        The story's own times are at most five minutes after the base time, the broker's clock is at least ten
        minutes after it. A timestamp that is months away is returned unchanged.
        """
        since = value - self.base_time
        if 8 * MINUTE <= since <= 40 * MINUTE:
            return "clock"
        return f"t0{since:+d}" if abs(since) < 10**10 else value


def read_or_text(normal: Normal, value: bytes, field: str) -> Any:
    if field == "records":
        return [normal.value(dict(batch), "", False) for batch in read_batches(value)]
    return text(value.replace(normal.prefix.encode(), b"~"))
