"""The user's own word on what is right: a command that gets the outputs, and judges them by its exit code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Final

from odradek.certify.verdict import Finding, Kind
from odradek.deadlines import stretched
from odradek.topics import Record

TIMEOUT_S: Final = stretched(60.0)
_SAID_MAX: Final = 2000


def ndjson(records: Iterable[Record]) -> str:
    """A line for each record: topic, partition, offset, timestamp_ms, key, value, headers. Bytes are in hexadecimal."""
    return "".join(json.dumps(_shown(each), ensure_ascii=False) + "\n" for each in records)


def _shown(record: Record) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [list(each) for each in record.headers],
    }


def _text(data: str | bytes | None) -> str | None:
    return data.hex() if isinstance(data, bytes) else data


def asked(command: str, records: Iterable[Record]) -> list[Finding]:
    """Nothing if the command ends with exit code 0; it reads the committed records as NDJSON on its standard input."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            input=ndjson(records),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Finding(Kind.REFUSED, f"{command} has not ended within {TIMEOUT_S:.0f} s")]
    if done.returncode == 0:
        return []
    said = (done.stdout + done.stderr).strip()[-_SAID_MAX:]
    return [
        Finding(Kind.REFUSED, f"{command} ended with exit code {done.returncode}", tuple(said.splitlines()))
    ]
