"""The broker's own log: for people on a terminal, one JSON object a line anywhere else; to standard output.

    log = get_logger()
    log.info("topic created", topic="orders", partitions=4)

A level that is off costs one call of an empty function: structlog has no other code there. To log never raises and
never waits: lines leave by a thread of their own (`broker.logging.writer`); one that cannot be rendered is logged as such.
"""

import atexit
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from broker.logging.limits import RateLimit
from broker.logging.printable import printable, printable_lines
from broker.logging.writer import Descriptor, LogWriter

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
# A client may send names of 32 KiB; tracebacks are longer than most.
VALUE_CHARACTERS_MAX: Final = 4_096
TRACEBACK_CHARACTERS_MAX: Final = 65_536

_writer: LogWriter | None = None
_loggers: Final[list[Any]] = []
"""All that there are, one for each module."""
_on_a_terminal = False


def configure(log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Set the log up for this process; the arguments are odradek.log.format and odradek.log.level.

    Lines leave by a thread of their own: who wants all of them to have left calls ``close``.
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
    processors: list[Processor] = [
        limit,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        render,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: _Queued(writer),
        cache_logger_on_first_use=True,
    )


def print_on_a_terminal(lines: Iterable[str]) -> bool:
    """Lines of text, in their place among those of the log; False, and nothing, where no person reads them."""
    if _on_a_terminal and _writer is not None:
        for line in lines:
            _writer.put(_encoded(line))
    return _on_a_terminal


def close() -> None:
    """Let what was logged leave, as far as it can be written, and wait for that at most ``log_writer.CLOSE_S_MAX``."""
    if _writer is not None:
        _writer.close()


def get_logger() -> FilteringBoundLogger:
    logger = structlog.get_logger()
    _loggers.append(logger)
    return cast(FilteringBoundLogger, logger)


def set_level(level: str) -> None:
    """Show lines of this level and above from now on: debug, info, warning or error."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]))
    for logger in _loggers:
        vars(logger).pop("bind", None)  # what it keeps from its first use (cache_logger_on_first_use)


def level() -> str:
    """The lowest level that is shown; debug where the log was not set up."""
    shown = structlog.get_config()["wrapper_class"]
    known = {structlog.make_filtering_bound_logger(number): name for name, number in LEVELS.items()}
    return known.get(shown, "debug")


def get_unfiltered_logger() -> FilteringBoundLogger:
    """For lines that are said at any level."""
    output = structlog.get_config()["logger_factory"]()
    everything = structlog.make_filtering_bound_logger(logging.NOTSET)
    return cast(FilteringBoundLogger, structlog.wrap_logger(output, wrapper_class=everything))


class _Queued:
    """What structlog gives the finished line to; it calls a method by the level's name."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def msg(self, line: str) -> None:
        self._writer.put(_encoded(line))

    debug = info = warning = error = critical = exception = log = msg


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _sink(stream: TextIO) -> Callable[[bytes], int]:
    """Where lines go: the descriptor below the stream, if it has one."""
    stream.flush()
    try:
        return Descriptor(stream.fileno())
    except OSError:  # io.UnsupportedOperation: it is in memory
        return lambda data: len(data) * bool(stream.write(data.decode()))


def _saying(render: Processor) -> Callable[[str, dict[str, object]], bytes]:
    """Lines of the writer's own."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

    def say(event: str, fields: dict[str, object]) -> bytes:
        line = stamp(None, "warning", {"level": "warning", "event": event, **fields})
        return _encoded(str(render(None, "warning", line)))

    return say


def _renderer(*, human: bool, colors: bool) -> Processor:
    """The processor that makes one text of an event, and never raises."""
    if human:
        plain = structlog.dev.plain_traceback
        last: list[Processor] = [
            _for_people,
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain),
        ]
    else:
        # In ASCII: JSON's escapes are all that a terminal is given of a client's characters.
        last = [_event_first, structlog.processors.JSONRenderer(), _without_delete]
    steps: list[Processor] = [structlog.processors.format_exc_info, _shortened, *last]

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        line: Any = event
        what = event.get("event")
        try:
            for step in steps:
                line = step(logger, method, line)
            return str(line)
        except Exception as error:
            facts = {
                "level": "error",
                "event": "log line not made",
                "of": ascii(what),
                "error": ascii(type(error)),
            }
            return json.dumps(facts)

    return render


def _shortened(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        limit = TRACEBACK_CHARACTERS_MAX if name == "exception" else VALUE_CHARACTERS_MAX
        if isinstance(value, str) and len(value) > limit:
            # Of a traceback the end says what happened.
            kept = value[-limit:] if name == "exception" else value[:limit]
            event[name] = f"{kept} ({len(value) - limit} more characters)"
    return event


def _for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A terminal obeys what it is given: text of clients is escaped. ConsoleRenderer does so only for text with blanks."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable_lines(value) if name == "exception" else printable(value)
    return event


def _event_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The same fields lead every line, so that lines can be read as they pass by."""
    lead = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return {**lead, **event}


def _without_delete(_logger: WrappedLogger, _method: str, line: EventDict) -> str:
    """JSON lets one control character of ASCII pass."""
    return str(line).replace("\x7f", "\\u007f")
