"""Outputs in files below the run's directory: Parquet, CSV, NDJSON and text, as records.

A file counts as soon as a reader would find it: files being written (`_HIDDEN`) do not count, and of a table that Spark
writes only what is committed: the files of the file sink's log (``_spark_metadata``), or those beside ``_SUCCESS``.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from odradek.certify.services.values import key_of, loads, plain, row
from odradek.errors import OdradekError
from odradek.topics import Record

if TYPE_CHECKING:
    from odradek.certify.services.specs import ServiceOutput

FORMATS: Final = (".parquet", ".csv", ".ndjson", ".jsonl", ".json", ".txt")
"""Suffixes of files. All but .parquet may be followed by .gz."""
DATA: Final = "{data}/"
_HIDDEN: Final = ("_", ".")
"""First characters of the names of files and directories that are being written, as Hadoop and Spark have it."""
_UNFINISHED: Final = (".crc", ".tmp", ".inprogress")
_SPARK_PART: Final = re.compile(r"part-\d{5}-[0-9a-f]{8}-[0-9a-f]{4}-.*")
"""Name of a file that a task of Spark has written. The name does not show whether the job was committed."""
_BATCH: Final = re.compile(r"(\d+)(\.compact)?")
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
LOOKS_MAX: Final = 10
"""Maximum number of looks at directories that the job removes meanwhile."""
_FILE, _REASON = "file", "cannot be read"
"""The columns of the row that represents an unreadable file."""

_Fields = Mapping[str, Any]


def check_pattern(pattern: str) -> str:
    """The pattern of ``files:PATTERN`` relative to the run's directory. Raises ``ValueError``."""
    relative = pattern.removeprefix(DATA)
    if relative.startswith("/") or ".." in PurePath(relative).parts:
        raise ValueError(f"files:{pattern}: expected files below the run's directory, {{data}}")
    suffix = PurePath(relative.removesuffix(".gz")).suffix
    if suffix and not re.search(r"[*?\[]", suffix):
        _check_format(pattern, suffix)
    return relative


def _check_format(name: str, suffix: str) -> None:
    if suffix not in FORMATS:
        raise ValueError(
            f"files:{name}: unknown format {suffix or name}: expected one of {', '.join(FORMATS)}"
        )
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ValueError(f"files:{name} needs pyarrow: pip install pyarrow") from None


def unreadable(record: Record) -> str:
    """Why the file of this record could not be read; empty if the record is a row."""
    if record.partition >= 0 or _REASON not in str(record.value)[:100]:
        return ""
    found = loads(str(record.value))
    return (
        f"{found[_FILE]}: {found[_REASON]}"
        if isinstance(found, dict) and set(found) == {_FILE, _REASON}
        else ""
    )


class Files:
    """The files of a run's outputs."""

    def __init__(self, outputs: Sequence[ServiceOutput]) -> None:
        self._patterns = [check_pattern(each.what) for each in outputs if not each.stage]
        self._data = Path()
        self._seen: list[tuple[Path, int, int]] = []
        self._changes = 0
        self._rows: dict[tuple[Path, int, int], list[tuple[str | None, object]]] = {}
        """The rows of each file that was read: an unchanged file is not read again."""

    def begin(self, data: Path) -> None:
        """Begin a run, whose directory is ``data``."""
        self._data = data
        self._seen = []
        self._rows.clear()

    @property
    def changes(self) -> int:
        """Number of changes of the files that were observed. It grows only."""
        if self._patterns:
            seen = [_state(each) for pattern in self._patterns for each in committed(self._data, pattern)]
            if seen != self._seen:
                self._seen = seen
                self._changes += 1
        return self._changes

    @property
    def are_there(self) -> bool:
        """Whether a file was seen in this run."""
        return bool(self.changes and self._seen)

    @property
    def names(self) -> frozenset[str]:
        """The files of all outputs, relative to the run's directory."""
        found = (each for pattern in self._patterns for each in committed(self._data, pattern))
        return frozenset(str(each.relative_to(self._data)) for each in found)

    def records(self, output: ServiceOutput) -> list[Record]:
        """The rows of the files of an output, file by file in the order of their names."""
        found = [
            each for path in committed(self._data, check_pattern(output.what)) for each in self._of(path)
        ]
        return [row(output.label, number, value, key) for number, (key, value) in enumerate(found)]

    def _of(self, path: Path) -> list[tuple[str | None, object]]:
        state = _state(path)
        if state not in self._rows:
            self._rows[state] = list(_rows(path, self._data))
        return self._rows[state]


def _state(path: Path) -> tuple[Path, int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return path, -1, 0
    return path, found.st_size, found.st_mtime_ns


# -- which files -------------------------------------------------------------------------------------------------


def committed(data: Path, pattern: str) -> list[Path]:
    """The files that the glob pattern matches, and those in directories that it matches, except those being written."""
    for _ in range(LOOKS_MAX):
        with contextlib.suppress(FileNotFoundError):  # the job removes a directory, such as _temporary
            return _committed(data, pattern)
    return _committed(data, pattern)


def _committed(data: Path, pattern: str) -> list[Path]:
    matched = list(data.glob(pattern))
    below = (each for path in matched if path.is_dir() for each in path.rglob("*"))
    named = PurePath(pattern).parts
    return [
        path
        for path in sorted({*matched, *below})
        if not _is_hidden(path.relative_to(data), named) and path.is_file() and _is_committed(path, data)
    ]


def _is_hidden(path: PurePath, named: Sequence[str]) -> bool:
    """Whether a reader ignores the path. A name in the user's pattern is no such name, nor is ``_column=value``."""
    return path.name.endswith(_UNFINISHED) or any(
        part.startswith(_HIDDEN) and part not in named and "=" not in part for part in path.parts
    )


def _is_committed(path: Path, data: Path) -> bool:
    for folder in path.parents:
        if (folder / "_spark_metadata").is_dir():
            return path.name in _sink_log(folder / "_spark_metadata")
        if (folder / "_delta_log").is_dir():
            raise OdradekError(f"files: {folder.relative_to(data)} is a Delta table, whose log is not read")
        if (folder / "_SUCCESS").exists():
            return True
        if folder == data:
            break
    return not _SPARK_PART.fullmatch(path.name)


def _sink_log(folder: Path) -> set[str]:
    """Names of the files in the log of Spark's file sink (FileStreamSinkLog).

    File N of the log has the files of batch N, and ``N.compact`` those of all batches up to N.
    """
    batches = [
        (int(found[1]), each)
        for each in folder.iterdir()
        if (found := _BATCH.fullmatch(each.name)) is not None
    ]
    compact = max((number for number, each in batches if each.suffix), default=-1)
    names: set[str] = set()
    for number, each in sorted(batches):
        if number < compact or (number == compact and not each.suffix):
            continue
        for line in each.read_text("utf-8").splitlines()[1:]:  # the first line is the version, v1
            entry = loads(line)
            name = PurePath(unquote(urlsplit(entry["path"]).path)).name
            (names.discard if entry.get("action") == "delete" else names.add)(name)
    return names


# -- rows of a file ----------------------------------------------------------------------------------------------


def _rows(path: Path, data: Path) -> Iterator[tuple[str | None, object]]:
    """Yield (key, value) of each row. A file that no reader could read is a row of its own, with the reason."""
    name = path.relative_to(data)
    suffix = PurePath(path.name.removesuffix(".gz")).suffix
    try:
        _check_format(str(name), suffix)
    except ValueError as error:
        raise OdradekError(str(error)) from None
    try:
        yield from _of_format(path, name, suffix)
    except FileNotFoundError:
        return  # renamed or removed meanwhile
    except (EOFError, gzip.BadGzipFile) as error:
        yield _unreadable(name, str(error))


def _of_format(path: Path, name: PurePath, suffix: str) -> Iterator[tuple[str | None, object]]:
    more = _partition(name)
    if suffix == ".parquet":
        yield from _parquet(path, name, more)
        return
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
    read = {".csv": _csv, ".txt": _lines, ".json": _document}.get(suffix, _json)
    for found in read(text):
        yield _row(found, more)


def _unreadable(name: PurePath, reason: str) -> tuple[str | None, object]:
    return None, {_FILE: str(name), _REASON: reason}


def _row(found: object, more: _Fields) -> tuple[str | None, object]:
    if not isinstance(found, dict):
        return key_of(found), found
    return key_of(next(iter(found.values()), None)), {**found, **more}


def _partition(name: PurePath) -> _Fields:
    """The columns that are directories: ``day=2026-01-01/part-0.parquet``."""
    pairs = (part.partition("=")[::2] for part in name.parts[:-1] if "=" in part)
    return {column: None if value == _NULL_PARTITION else unquote(value) for column, value in pairs}


def _parquet(path: Path, name: PurePath, more: _Fields) -> Iterator[tuple[str | None, object]]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with path.open("rb") as file:
            rows = ParquetFile(file).read().to_pylist()
    except pa.ArrowNotImplementedError as error:
        raise OdradekError(f"files:{name}: {error}") from None
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        yield _unreadable(name, str(error).splitlines()[0])
        return
    for each in rows:
        yield _row(plain(each), more)


def _csv(text: str) -> Iterator[object]:
    """Rows below a header. A last line without a line break counts if it has as many fields as the header."""
    lines = csv.reader(io.StringIO(text, newline=""))
    header = next(lines, [])
    rows = [each for each in lines if each]
    if rows and not text.endswith("\n") and len(rows[-1]) < len(header):
        rows.pop()
    for each in rows:
        yield dict(zip(header, each, strict=True)) if len(each) == len(header) else each


def _lines(text: str) -> Iterator[object]:
    yield from text.splitlines()


def _document(text: str) -> Iterator[object]:
    """The rows of a file that is one array, otherwise those of its lines."""
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError):  # lines that are arrays, or an unfinished array
            return iter(loads(text))
    return _json(text)


def _json(text: str) -> Iterator[object]:
    """The JSON value of each line. Other lines are text, except an unfinished last one."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield loads(line)
            except ValueError:
                if number < len(lines):
                    yield line
