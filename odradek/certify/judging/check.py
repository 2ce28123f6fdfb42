"""The user's own word on what is right: a command that gets the outputs, and judges them by its exit code.

It may look at a database or at files of the job: it is asked before the folder of the run goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from odradek.certify.judging.findings import Finding, Kind
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.topics import Record

TIMEOUT_S: Final = stretched(60.0)
NOT_YET: Final = 75
"""Exit code (EX_TEMPFAIL): records are missing that may still come; the check is to be asked again."""
PARQUET: Final = "{parquet}"
"""In a command: the path of a file with the same records."""
INSTANCE: Final = "instance"
"""Of the values: the numbers of all instances that were started, ``1 2``."""
_SAID_MAX: Final = 2000
_GIVES_UP_S: Final = 1.0
"""What the pipes of a command that was killed get to close: a process that has left its session may keep them."""
_KINDS: Final = {
    each.value: each
    for each in (
        Kind.LOST,
        Kind.DUPLICATED,
        Kind.TORN,
        Kind.REORDERED,
        Kind.CHANGED,
        Kind.UNEXPECTED,
        Kind.STUCK,
    )
}
_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Check:
    """The command, and the directory that it is started in."""

    command: str
    directory: Path | None = None

    def filled(self, values: Mapping[str, str]) -> str:
        """With the placeholders that have a value. Other braces are the shell's, or awk's."""
        filled = self.command
        for name, value in values.items():
            word = value if name == INSTANCE else shlex.quote(value)
            filled = filled.replace("{" + name + "}", word)
        return filled


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


def asked(
    command: str,
    records: Iterable[Record],
    values: Mapping[str, str] = _NO_VALUES,
    again: Callable[[], Sequence[Record] | None] = lambda: None,
    directory: Path | None = None,
) -> list[Finding]:
    """Nothing if the command ends with exit code 0.

    It reads the committed records as NDJSON on its standard input; where it has ``{parquet}`` in it, it gets them as a file
    too. ``values`` are the other placeholders, by their names without braces: ``bootstrap``, ``data``, ``run`` and
    ``instance``; the environment has them as ``ODRADEK_DATA`` and so on.

    ``again`` is called when it ends with exit code `NOT_YET`: it waits a moment and returns the records as they are then,
    or None when there is no time any more.
    """
    check = Check(command, directory)
    while True:
        code, lines = _answer(check, list(records), values)
        if code == NOT_YET and (now := again()) is not None:
            records = now
            continue
        return _findings(command, code, lines)


def _findings(command: str, code: int | None, lines: Sequence[str]) -> list[Finding]:
    """Lines that begin with a kind of finding and a colon are such findings; without any the check refuses the outputs."""
    if code == 0:
        return []
    said: defaultdict[Kind, list[str]] = defaultdict(list)
    for line in lines:
        word, colon, rest = line.partition(":")
        if colon and word.strip().lower() in _KINDS:
            said[_KINDS[word.strip().lower()]].append(rest.strip())
    if said:
        return [Finding(kind, f"{command} says so", tuple(found)) for kind, found in said.items()]
    if code is None:
        sentence = f"{command} has not ended within {TIMEOUT_S:.0f} s"
    elif code == NOT_YET:
        sentence = f"{command} ended with exit code {code} (not yet) until there was no time any more"
    else:
        sentence = f"{command} ended with exit code {code}"
    return [Finding(Kind.REFUSED, sentence, tuple(lines))]


def _answer(check: Check, records: list[Record], values: Mapping[str, str]) -> tuple[int | None, list[str]]:
    """(exit code, lines that it printed); None if it did not end in time. Each call has a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="odradek-check-") as folder:
        if PARQUET in check.command:
            path = Path(folder) / "outputs.parquet"
            write_parquet(records, path)
            values = {**values, "parquet": str(path)}
        process = subprocess.Popen(
            check.filled(values),
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=check.directory,
            env=_environment(values),
            start_new_session=True,
        )
        code, output = _ended(process, ndjson(records).encode())
    return code, output.decode("utf-8", "replace").strip()[-_SAID_MAX:].splitlines()


def _environment(values: Mapping[str, str]) -> dict[str, str]:
    environment = {**os.environ, **{f"ODRADEK_{name.upper()}": value for name, value in values.items()}}
    if "bootstrap" in values:
        environment["KAFKA_BOOTSTRAP_SERVERS"] = values["bootstrap"]
    return environment


def _ended(process: subprocess.Popen[bytes], told: bytes) -> tuple[int | None, bytes]:
    """Its exit code and output; its whole session is killed where it does not end, and where the user interrupts."""
    with process:
        try:
            output, _ = process.communicate(told, TIMEOUT_S)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            _kill(process)
            return None, _rest(process)
        except BaseException:
            _kill(process)
            raise


def _rest(process: subprocess.Popen[bytes]) -> bytes:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_GIVES_UP_S)[0]
    return b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
