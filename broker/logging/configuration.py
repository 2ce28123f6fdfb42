"""The broker's log on standard output: readable text on a terminal, else one JSON object per line.

    log = get_logger()
    log.info("topic created", topic="orders", partitions=4)

A disabled level costs one comparison. Logging never raises and never blocks: a thread writes the lines
(`broker.logging.writer`). A line that cannot be rendered is replaced by a line that says so.

structlog renders the readable lines. JSON lines are made here, since importing structlog takes 12 ms of a start. In a
program that has not called ``configure``, all lines go to structlog, as that program has configured it.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from broker.logging.limits import RateLimit
from broker.logging.printable import printable, printable_lines
from broker.logging.writer import Descriptor, LogWriter

Event = dict[str, Any]
Render = Callable[[str, Event], str]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# A client may send names of 32 KiB. Most tracebacks are shorter than their limit.
VALUE_CHARACTERS_MAX: Final = 4_096
TRACEBACK_CHARACTERS_MAX: Final = 65_536

_writer: LogWriter | None = None
_on_a_terminal = False


def configure(log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Configure the log of this process, with the values of odradek.log.format and odradek.log.level.

    A thread writes the lines. ``close`` waits until all are written.
    """
    global _on_a_terminal, _writer
    close()
    atexit.unregister(close)
    atexit.register(close)
    stream = stream or sys.stdout
    human = log_format == "human" or (log_format == "auto" and stream.isatty())
    _on_a_terminal = human and stream.isatty()
    limit = RateLimit()
    render = _renderer(human=human, colors=_on_a_terminal and not os.environ.get("NO_COLOR"))
    writer = _writer = LogWriter(_sink(stream), _saying(render), limit.take)
    limit.on_first_suppressed = writer.say_suppressed_later

    def emit(level: str, event: str, fields: Event) -> None:
        line = {"event": event, **fields}
        if limit(line):
            writer.put(_encoded(render(level, line)))

    _log.emit, _log.level = emit, LEVELS[level]


def print_on_a_terminal(lines: Iterable[str]) -> bool:
    """Print lines of text, in order with the log lines. Does nothing and returns False if the output is not a terminal."""
    if _on_a_terminal and _writer is not None:
        for line in lines:
            _writer.put(_encoded(line))
    return _on_a_terminal


def close() -> None:
    """Wait until the queued lines are written, if possible, for at most ``writer.CLOSE_S_MAX`` seconds."""
    if _writer is not None:
        _writer.close()


class Logger:
    """Logs an event with its fields: ``log.info("topic created", topic="orders")``."""

    __slots__ = ()

    def debug(self, event: str, **fields: object) -> None:
        if _log.level <= 10:
            _log.emit("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        if _log.level <= 20:
            _log.emit("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        if _log.level <= 30:
            _log.emit("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        if _log.level <= 40:
            _log.emit("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True, **fields})


class _UnfilteredLogger(Logger):
    __slots__ = ()

    def info(self, event: str, **fields: object) -> None:
        _log.emit("info", event, fields)


def _by_structlog(level: str, event: str, fields: Event) -> None:
    import structlog

    getattr(structlog.get_logger(), level)(event, **fields)


class _Log:
    """The state of the log in this process."""

    __slots__ = ("emit", "level")

    def __init__(self) -> None:
        self.level = 0
        self.emit: Callable[[str, str, Event], None] = _by_structlog


_log: Final = _Log()


def forget() -> None:
    """Undo ``configure``: write the queued lines, and pass later lines to structlog."""
    close()
    _log.__init__()  # type: ignore[misc]


def get_logger() -> Logger:
    return Logger()


def set_level(level: str) -> None:
    """Log lines of this level and above from now on: debug, info, warning or error."""
    _log.level = LEVELS[level]


def level() -> str:
    """The lowest enabled level; debug if the log was not configured."""
    return next((name for name, number in LEVELS.items() if number == _log.level), "debug")


def get_unfiltered_logger() -> Logger:
    """Return a logger whose ``info`` writes the line even if the level is disabled."""
    return _UnfilteredLogger()


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _sink(stream: TextIO) -> Callable[[bytes], int]:
    """Return the function that writes log lines to the stream's file descriptor, or to the stream if it has none."""
    stream.flush()
    try:
        return Descriptor(stream.fileno())
    except OSError:  # io.UnsupportedOperation: the stream is in memory
        return lambda data: len(data) * bool(stream.write(data.decode()))


def _saying(render: Render) -> Callable[[str, dict[str, object]], bytes]:
    """Return a function that renders the lines that `LogWriter` adds itself, such as the number of dropped lines."""

    def say(event: str, fields: dict[str, object]) -> bytes:
        return _encoded(render("warning", {"event": event, **fields}))

    return say


def _renderer(*, human: bool, colors: bool) -> Render:
    """Return a function that renders an event as text, and never raises."""
    last = _for_people(colors) if human else _json

    def render(level: str, line: Event) -> str:
        what = line.get("event")
        try:
            failure = line.pop("exc_info", None)
            # Every line starts with the same fields, which makes lines easy to scan.
            lead = {"timestamp": _timestamp(), "level": level, "event": what}
            line = {**lead, **line, **lead}
            if failure:
                line["exception"] = _traceback_of(failure)
            _shorten(line)
            return last(line)
        except Exception as error:
            facts = {
                "level": "error",
                "event": "log line could not be rendered",
                "of": ascii(what),
                "error": ascii(type(error)),
            }
            return json.dumps(facts)

    return render


def _timestamp() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1000:06d}Z"


def _traceback_of(failure: object) -> str:
    """Traceback of ``failure`` if it is an exception, else of the exception that is being handled."""
    import traceback

    error = failure if isinstance(failure, BaseException) else sys.exc_info()[1]
    return "MISSING" if error is None else "".join(traceback.format_exception(error)).removesuffix("\n")


def _shorten(line: Event) -> None:
    for name, value in line.items():
        limit = TRACEBACK_CHARACTERS_MAX if name == "exception" else VALUE_CHARACTERS_MAX
        if isinstance(value, str) and len(value) > limit:
            # The end of a traceback is its most important part.
            kept = value[-limit:] if name == "exception" else value[:limit]
            line[name] = f"{kept} ({len(value) - limit} more characters)"


def _json(line: Event) -> str:
    """Render a line as ASCII JSON.

    JSON's escapes make text of clients harmless on a terminal, except DEL, which is escaped here.
    """
    return json.dumps(line, default=repr).replace("\x7f", "\\u007f")


def _for_people(colors: bool) -> Callable[[Event], str]:
    """Return a function that renders a line for a terminal, with all text escaped. ConsoleRenderer itself escapes only text
    that contains blanks."""
    from structlog.dev import ConsoleRenderer, plain_traceback

    show = ConsoleRenderer(colors=colors, exception_formatter=plain_traceback)

    def render(line: Event) -> str:
        for name, value in line.items():
            if isinstance(value, str):
                line[name] = printable_lines(value) if name == "exception" else printable(value)
        return str(show(None, str(line["level"]), line))

    return render
