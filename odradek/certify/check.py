"""The user's own word on what is right: a command that gets the outputs, and judges them by its exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from odradek.certify.verdict import Finding, Kind
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.topics import Record

TIMEOUT_S: Final = stretched(60.0)
PARQUET: Final = "{parquet}"
"""In a command: the path of a file with the same records."""
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
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: str | bytes | None) -> str | None:
    return data.hex() if isinstance(data, bytes) else data


def write_parquet(records: Iterable[Record], path: Path) -> None:
    """The columns of Spark's Kafka source, and ``headers`` as it has them with ``includeHeaders``."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise OdradekError(f"{PARQUET} in --check needs pyarrow: pip install pyarrow") from None
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("headers", pa.list_(header)),
        ]
    )
    rows = [
        {
            "key": _bytes(each.key),
            "value": _bytes(each.value),
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": each.timestamp_ms,
            "headers": [{"key": name, "value": _bytes(value)} for name, value in each.headers],
        }
        for each in records
    ]
    parquet.write_table(pa.Table.from_pylist(rows, schema), path)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def asked(command: str, records: Iterable[Record]) -> list[Finding]:
    """Nothing if the command ends with exit code 0. It reads the committed records as NDJSON on its standard input; where it
    has ``{parquet}`` in it, it gets them as a file too."""
    records = list(records)
    with tempfile.TemporaryDirectory(prefix="odradek-check-") as folder:
        filled = command
        if PARQUET in command:
            path = Path(folder) / "outputs.parquet"
            write_parquet(records, path)
            filled = command.replace(PARQUET, shlex.quote(str(path)))
        return _said(command, filled, ndjson(records))


def _said(command: str, filled: str, told: str) -> list[Finding]:
    try:
        done = subprocess.run(
            filled,
            shell=True,
            input=told,
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
