"""The user's check: a command that gets the outputs, and whose exit code shows whether they are correct.

The command may query a database or read files of the job. It runs before the run's directory is deleted.
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

from odradek.certify.jobs.command import variables
from odradek.certify.judging.findings import Finding, Kind
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.topics import Record

TIMEOUT_S: Final = stretched(60.0)
NOT_YET: Final = 75
"""Exit code (EX_TEMPFAIL) for missing records that may still arrive; the check is then called again."""
PARQUET: Final = "{parquet}"
"""Placeholder for the path of a Parquet file with the committed records."""
INSTANCE: Final = "instance"
"""Placeholder for the numbers of all instances that were started, such as ``1 2``."""
_SAID_MAX: Final = 2000
_GIVES_UP_S: Final = 1.0
"""How long the pipes of a killed command may stay open, in seconds: a process in another session may have inherited them."""
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
    """The user's check: its command and its working directory."""

    command: str
    directory: Path | None = None

    def filled(self, values: Mapping[str, str]) -> str:
        """Replace the known placeholders in the command. Other braces belong to the shell or to awk."""
        filled = self.command
        for name, value in values.items():
            word = value if name == INSTANCE else shlex.quote(value)
            filled = filled.replace("{" + name + "}", word)
        return filled


def ndjson(records: Iterable[Record]) -> str:
    """One JSON line per record: topic, partition, offset, timestamp_ms, key, value, headers. Bytes are hexadecimal."""
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
    """Write the columns of Spark's Kafka source, with ``headers`` as with ``includeHeaders``."""
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


def run_check(
    command: str,
    records: Iterable[Record],
    values: Mapping[str, str] = _NO_VALUES,
    again: Callable[[], Sequence[Record] | None] = lambda: None,
    directory: Path | None = None,
) -> list[Finding]:
    """Run the check, and return its findings; empty if it ends with exit code 0.

    The command reads the committed records as NDJSON from standard input. If the command contains ``{parquet}``, it
    also gets the records as a Parquet file. ``values`` are the other placeholders by their names without braces:
    ``bootstrap``, ``data``, ``run`` and ``instance``. They are also environment variables: ``ODRADEK_DATA`` and so on.

    ``again`` is called if the exit code is `NOT_YET`. This function waits for a moment and returns the current records,
    or None if there is no time left.
    """
    check = Check(command, directory)
    while True:
        code, lines = _run_once(check, list(records), values)
        if code == NOT_YET and (now := again()) is not None:
            records = now
            continue
        return _findings(command, code, lines)


def _findings(command: str, code: int | None, lines: Sequence[str]) -> list[Finding]:
    """Parse the findings from the check's output: lines that begin with a kind and a colon.

    If there are none and the exit code is not 0, return one finding of kind refused.
    """
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
        sentence = f"{command} did not end within {TIMEOUT_S:.0f} s"
    elif code == NOT_YET:
        sentence = f"{command} ended with exit code {code} (not yet) until there was no time left"
    else:
        sentence = f"{command} ended with exit code {code}"
    return [Finding(Kind.REFUSED, sentence, tuple(lines))]


def _run_once(check: Check, records: list[Record], values: Mapping[str, str]) -> tuple[int | None, list[str]]:
    """Run the check's command once. Returns its exit code (None after a timeout) and the last lines of its output."""
    with tempfile.TemporaryDirectory(prefix="odradek-check-") as folder:
        if PARQUET in check.command:
            path = Path(folder) / "outputs.parquet"
            write_parquet(records, path)
            values = {**values, "parquet": str(path)}
        return run_command(check, values, ndjson(records).encode())


def run_command(command: Check, values: Mapping[str, str], told: bytes = b"") -> tuple[int | None, list[str]]:
    """Run a command of the user with ``told`` as its standard input. Returns its exit code and its last lines.

    The exit code is None after a timeout.
    """
    process = subprocess.Popen(
        command.filled(values),
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=command.directory,
        env={**os.environ, **variables(values)},
        start_new_session=True,
    )
    code, output = _ended(process, told)
    return code, output.decode("utf-8", "replace").strip()[-_SAID_MAX:].splitlines()


def _ended(process: subprocess.Popen[bytes], told: bytes) -> tuple[int | None, bytes]:
    """Write ``told`` to standard input, and return the exit code (None after a timeout) and the output.

    Kills the whole session of the process after a timeout or an interrupt by the user.
    """
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
