"""The reduction of a response to the parts that the matrix compares: which parts are refused, with which messages, and
which names the response reveals.

A refused part keeps every field. All other parts keep only codes and names, as other tests compare the rest.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

REFUSALS = {29, 30, 31, 53, 54, 61, 64, 65}
"""Error codes of refused authorizations, of a broker without an authorizer, and of disabled delegation tokens."""
CODES = ("error_code", "partition_error_code", "topic_config_error_code")
NAMES = {
    "authorized_operations",
    "cluster_authorized_operations",
    "group_id",
    "index",
    "key",
    "mechanism",
    "name",
    "partition",
    "partition_id",
    "partition_index",
    "partitions",
    "principal_name",
    "resource_name",
    "resource_type",
    "topic",
    "topic_authorized_operations",
    "topic_id",
    "topic_name",
    "transactional_id",
    "user",
}
# Names that the matrix has made. Requests for all resources also list others.
OWN = re.compile(r"(open|shut)-|__consumer_offsets$|__transaction_state$|")
LEFT_OUT = (
    "throttle_time",
    "brokers",
    "nodes",
    "node_endpoints",
    "api_keys",
    "supported_features",
    "finalized_features",
)
"""Fields that are not compared, as they differ between Kafka and our broker: throttle times, addresses, features,
versions."""
MANY = 10
"""Maximum length of a list that is compared by its entries. A longer list without errors is reduced to its length:
it has the partitions of an internal topic."""
FRESH = re.compile(r"-n\d+\b")
ORDERED = {
    "alter_configs",
    "describe_configs",
    "fetch",
    "incremental_alter_configs",
    "offset_commit",
    "offset_for_leader_epoch",
}
"""APIs whose responses have a defined order, some with refused parts last. The responses of all other APIs have the
order of a map in Kafka, so they are sorted before the comparison."""
PASSING = re.compile(r"-(n\d+|doomed|old)$")
"""Names of resources that one row of the matrix creates and another row deletes."""
REQUEST = re.compile(r"Request\(.*\)(?= needs )")
PRINCIPALS = ("principal_name", "token_requester_principal_name")
NAMES_OF_ROWS = ("name", "group_id", "transactional_id", "topic", "resource_name")


class Normal:
    """A normaliser for the response to a request of ``user``. ``topic_ids`` has names by topic id, ``asked`` is the
    request."""

    def __init__(self, user: str, topic_ids: Mapping[uuid.UUID, str], asked: str) -> None:
        self._user = user
        self._topic_ids = topic_ids
        self._asked = asked

    def answer(self, api: str, body: Any) -> Any:
        """The normalised response. `CLOSED` and `SILENCE`, which stand for a missing response, are returned
        unchanged."""
        self._is_ordered = api in ORDERED
        if isinstance(body, str):
            return body
        return self._struct(body)

    def _struct(self, body: dict[str, Any]) -> dict[str, Any]:
        is_refused = any(body.get(code) in REFUSALS for code in CODES)
        told: dict[str, Any] = {}
        for name, value in body.items():
            if name in LEFT_OUT:
                continue
            if isinstance(value, list):
                told[name] = self._list(value)
            elif isinstance(value, dict):
                told[name] = self._struct(value)
            elif name in CODES or name in NAMES or is_refused:
                told[name] = self._scalar(name, value)
            elif name == "error_message" and value:
                told[name] = "(text)"
        return {name: value for name, value in told.items() if value != [] or is_refused}

    def _list(self, values: list[Any]) -> list[Any]:
        own = [each for each in values if self._is_own(each)]
        told = [self._struct(each) if isinstance(each, dict) else self._scalar("", each) for each in own]
        if len(told) > MANY and all(isinstance(each, dict) and each.get("error_code") == 0 for each in told):
            return [f"{len(told)} without an error"]
        return told if self._is_ordered else sorted(told, key=repr)

    def _is_own(self, row: Any) -> bool:
        """Whether a row of the response is about a resource of the matrix, other than one that an earlier row created."""
        if not isinstance(row, dict):
            return True
        names = [row[name] for name in NAMES_OF_ROWS if row.get(name)]
        is_asked = row.get("topic_id") is not None and repr(row["topic_id"]) in self._asked
        return all(
            OWN.match(name) and (is_asked or name in self._asked or not PASSING.search(name))
            for name in names
        )

    def _scalar(self, name: str, value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return self._topic_ids.get(value, "an id")
        if isinstance(value, bytes):
            return value.hex()
        if name in PRINCIPALS and value == self._user:
            return "the client"
        if isinstance(value, str):
            return FRESH.sub("", REQUEST.sub("Request(…)", value))
        return value
