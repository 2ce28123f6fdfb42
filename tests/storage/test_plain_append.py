"""A small batch goes into the active segment the compiled way or in Python, and the log is the same afterwards."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.core import TWINS, compiled
from storage import files
from storage.config import LogConfig
from storage.log import Log
from tests.storage.logs import NOW_MS, TOPIC_ID, append

steps = st.tuples(
    st.integers(1, 3),  # records
    st.sampled_from([5, 100, 20_000]),  # bytes of each value; the last is above what the compiled way takes
    st.sampled_from([0, 1, -1, 10_000, 2**40]),  # ms after the first batch
    st.sampled_from([0, 0, 0, 1]),  # leader epochs later
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "segment_bytes": st.sampled_from([300, 1000]),
        "segment_ms": st.sampled_from([1, 5000, 2**63 - 1]),
        "index_interval_bytes": st.sampled_from([0, 200, 4096]),
        "segment_index_bytes": st.sampled_from([24, 120]),
    },
)


class PythonLog(Log):
    _append_plain = TWINS["append_plain"]


def state(log: Log) -> dict[str, object]:
    return {
        "end": log.log_end_offset,
        "segments": [
            (each.base_offset, each.size, each._max_timestamp_ms, each._max_timestamp_offset)
            for each in log.segments
        ],
        "tail": [(last, segment.base_offset, *rest) for last, segment, *rest in log._tail],
        "epochs": log.epochs.latest,
    }


def files_of(log: Log) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.directory.iterdir() if path.suffix != ".metadata"}


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=25), configs)
@example([(1, 5, 0, 0)] * 8, {})
@example([(1, 5, 0, 0), (1, 5, 0, 1), (1, 5, 2**40, 0)], {})
def test_both_ways_leave_the_same_log(appends, chosen):
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        logs = [
            kind(Path(at) / "topic-0", TOPIC_ID, LogConfig(**chosen))
            for kind, at in ((Log, one), (PythonLog, other))
        ]
        for log in logs:
            epoch = 0
            for records, size, later_ms, epochs in appends:
                epoch += epochs
                append(log, records, value=bytes(size), timestamp_ms=NOW_MS + later_ms, leader_epoch=epoch)
        compiled_log, python_log = logs
        assert state(compiled_log) == state(python_log)
        for log in logs:
            log.close(clean=True)
        assert files_of(compiled_log) == files_of(python_log)


def test_a_small_batch_does_not_need_python(make_log, monkeypatch):
    log = make_log()
    append(log, 2)
    append(log)
    if compiled is not None:
        monkeypatch.delitem(TWINS, "append_plain")
    assert append(log) == 3


class Failing(files.System):
    """A disk on which there is no room."""

    @staticmethod
    def pwritev(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_replaced_system_sees_the_write(make_log):
    log = make_log()
    append(log)
    before = files.use_system(Failing())
    try:
        with pytest.raises(files.StorageError, match="No space"):
            append(log)
    finally:
        files.use_system(before)
    assert append(log) == 1


def test_a_descriptor_that_fails_is_reported_by_python(make_log):
    log = make_log()
    append(log)
    file = log.active._log
    fd, file._fd = file._fd, os.open(file.name, os.O_RDONLY)
    with pytest.raises(files.StorageError, match="Bad file descriptor"):
        append(log)
    os.close(file._fd)
    file._fd = fd
    assert append(log) == 1


def test_a_closed_log_takes_nothing(make_log):
    log = make_log()
    append(log)
    log.close(clean=True)
    with pytest.raises(Exception, match="closed"):
        append(log)


def test_what_is_no_batch_is_left_to_python(make_log):
    log = make_log()
    append(log)
    with pytest.raises(AttributeError):
        log._append_plain(b"no batch", 0)
