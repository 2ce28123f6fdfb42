"""`LogWriter.put` neither waits nor raises, whatever happens to the file or pipe of the log."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.logging.writer import Descriptor, LogWriter
from tests.support.deadlines import HANG_S


class Sink:
    """A file that collects what is written. Until ``open`` is set, writes block as to an unread pipe. If ``broken`` is
    true, each write returns 0 and writes nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.broken = False
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def __call__(self, data: bytes) -> int:
        self.begun.set()
        self.open.wait(HANG_S)
        if self.broken:
            return 0
        self.written += data
        return len(data)


def say(event: str, fields: dict[str, object]) -> bytes:
    return f"{event} {fields}\n".encode()


def test_lines_are_written_in_their_order() -> None:
    sink = Sink()
    writer = LogWriter(sink, say)
    for number in range(20_000):
        while writer._lines > 9_000:
            pass  # stay below the bound, which the next tests cover
        writer.put(b"%d\n" % number)
    assert writer.close(HANG_S)
    assert sink.written == b"".join(b"%d\n" % number for number in range(20_000))


def blocked(**bounds: Any) -> tuple[Sink, LogWriter]:
    """A writer whose thread is blocked in its first write."""
    sink = Sink()
    sink.open.clear()
    writer = LogWriter(sink, say, **bounds)
    writer.put(b"first\n")
    assert sink.begun.wait(HANG_S)
    return sink, writer


def test_a_pipe_that_nothing_is_read_from_holds_up_no_caller_and_the_end_only_for_its_bound() -> None:
    sink, writer = blocked(lines_max=10)
    for _ in range(1_000):
        writer.put(b"x\n")
    assert not writer.close(timeout_s=0.01)
    sink.open.set()
    assert writer.close(HANG_S)


def test_lines_that_do_not_fit_are_counted_where_they_are_missing() -> None:
    sink, writer = blocked(lines_max=3)
    for number in range(2, 10):
        writer.put(b"%d\n" % number)
    sink.open.set()
    assert writer.close(HANG_S)
    assert sink.written == b"first\n2\n3\nlog lines dropped {'lines': 6}\n"


def test_the_queue_is_bounded_in_bytes_too() -> None:
    sink, writer = blocked(bytes_max=1_000)
    writer.put(b"x" * 990 + b"\n")
    writer.put(b"y" * 2_000 + b"\n")
    writer.put(b"2\n")
    sink.open.set()
    assert writer.close(HANG_S)
    assert sink.written == b"first\n" + b"x" * 990 + b"\nlog lines dropped {'lines': 1}\n2\n"


def test_lines_that_cannot_be_written_are_counted_as_soon_as_one_can() -> None:
    sink = Sink()
    sink.broken = True
    writer = LogWriter(sink, say)
    for number in range(5):
        sink.begun.clear()
        writer.put(b"%d\n" % number)
        assert sink.begun.wait(HANG_S)
    sink.open.clear()
    writer.put(b"after\n")
    sink.broken = False
    sink.open.set()
    assert writer.close(HANG_S)
    assert sink.written == b"log lines dropped {'lines': 5}\nafter\n"


def test_suppressed_lines_are_counted_even_if_no_line_follows() -> None:
    sink = Sink()
    left_out: list[tuple[str, dict[str, object]]] = [("suppressed", {"lines": 7})]

    def take() -> list[tuple[str, dict[str, object]]]:
        taken, left_out[:] = list(left_out), []
        return taken

    writer = LogWriter(sink, say, take)
    writer.say_suppressed_later()
    assert writer.close(HANG_S)
    assert sink.written == b"suppressed {'lines': 7}\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert Descriptor(writer)(b"line\n") == 0
    os.close(writer)


def test_a_disk_that_is_full_is_no_error() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    assert Descriptor(fd)(b"line\n") == 0
    os.close(fd)


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    data = b"x" * 300_000
    taken = bytearray()

    def read() -> None:
        while len(taken) < len(data):
            taken.extend(os.read(reader, 65_536))

    thread = threading.Thread(target=read)
    thread.start()
    assert Descriptor(writer)(data) == len(data)
    thread.join(HANG_S)
    assert taken == data


def test_after_a_truncated_line_the_next_line_is_complete(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    room = [13]
    write = os.write

    def full(to: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        written = write(to, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", full)
    out = Descriptor(fd)
    assert out(b"a whole\na half line\n") == 13
    assert out(b"nothing\n") == 0
    room[0] = 100
    assert out(b"next\n") == 5
    os.close(fd)
    assert path.read_bytes() == b"a whole\na hal\nnext\n"
