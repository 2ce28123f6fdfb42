"""Parse the options of the sink ``format("odradek.exactly_once")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from odradek.spark.sink.decision_record import Answer
from odradek.spark.sink.errors import SinkError
from odradek.spark.sink.names import NAME_LENGTH_MAX, from_checkpoint
from odradek.spark.sink.plan import Settings
from odradek.spark.wire import ClientSettings

# Every cluster creates this topic when a client first looks up a group, and it is not deleted with the data. See README.md.
DECISION_TOPIC = "__consumer_offsets"
# The default of the broker's transaction.max.timeout.ms.
TRANSACTION_TIMEOUT_MS = 900_000
_TIMEOUT = "kafka.transaction.timeout.ms"
# Settings that the sink decides itself, with the values that it uses. Other values are rejected instead of ignored.
_OURS = {
    "kafka.transactional.id": (),
    "kafka.group.id": (),
    "kafka.enable.idempotence": ("true",),
    "kafka.acks": ("all", "-1"),
}


@dataclass(frozen=True)
class SinkOptions:
    """The parsed options. ``topic``: the option ``topic``, which takes precedence over the column ``topic``.

    ``batch``: the option ``batchId`` of a batch write.
    """

    client: ClientSettings
    protocol: Settings
    topic: str | None
    batch: int | None

    @classmethod
    def of(cls, options: Mapping[str, str], *, batch_write: bool = False) -> SinkOptions:
        """Parse the options. Raises ``SinkError`` or ``wire.BadSettings`` with a message for the user."""
        given = {name.lower(): value for name, value in options.items()}
        for name, same in _OURS.items():
            if given.pop(name, "").strip().lower() not in ("", *same):
                raise SinkError(
                    f"The option {name} cannot be set: the sink sets it (its ids begin with the option 'name')."
                )
        timeout_ms = _number(given, _TIMEOUT, TRANSACTION_TIMEOUT_MS)
        given.pop(_TIMEOUT, None)
        name = _name(given, batch_write)
        batch = _number(given, "batchId", None) if batch_write else None
        return cls(
            client=ClientSettings.from_options(given),
            protocol=Settings(
                name,
                given.get("decisiontopic", DECISION_TOPIC),
                timeout_ms or TRANSACTION_TIMEOUT_MS,
                _answer(given),
                hashed=_flag(given, "contentHash", True),
                checkpoint=given.get("checkpointlocation"),
                streaming=not batch_write,
                numbered=not batch_write or batch is not None,
            ),
            topic=given.get("topic"),
            batch=batch,
        )


def _name(given: Mapping[str, str], batch_write: bool) -> str:
    """The sink's name. It must not change while the query exists: transactional ids and the group contain it."""
    name = given.get("name") or given.get("queryname")
    if not name and given.get("checkpointlocation"):
        name = from_checkpoint(given["checkpointlocation"])
    if not name and batch_write:
        if "batchid" in given:
            raise SinkError(
                "The option 'batchId' needs the option 'name': a repeated write finds its batch by both."
            )
        name = f"odradek-{uuid4().hex}"
    if not name:
        raise SinkError(
            "The sink needs a name that stays the same when the query is started again: set the option 'name', "
            "queryName() or the option 'checkpointLocation'."
        )
    if len(name) > NAME_LENGTH_MAX:
        raise SinkError(f"The name of a sink has at most {NAME_LENGTH_MAX} characters.")
    return name


def _answer(given: Mapping[str, str]) -> Answer | None:
    text = given.get("firstbatch")
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)@(\d+)\s*", text, re.ASCII)
    if match is None:
        raise SinkError(
            f"The option firstBatch must be BATCH@PLAN as in the sink's error message, with two whole numbers, not {text!r}."
        )
    return Answer(int(match[1]), int(match[2]))


def _number(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise SinkError(f"The option {name} must be a whole number, not {text!r}.")
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise SinkError(f"The option {name} must be true or false, not {text!r}.")
    return text == "true"
