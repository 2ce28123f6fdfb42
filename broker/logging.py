"""The broker's own log: for people on a terminal, one JSON object a line anywhere else; to standard output.

    log = get_logger()
    log.info("topic created", topic="orders", partitions=4)

A level that is off costs one call of an empty function: structlog's loggers have no other code there.
"""

import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Set the log up for this process; the arguments are odradek.log.format and odradek.log.level."""
    stream = stream or sys.stdout
    human = log_format == "human" or (log_format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if human:
        processors.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    else:
        processors += [
            structlog.processors.format_exc_info,
            _event_first,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )


def get_logger() -> FilteringBoundLogger:
    return cast(FilteringBoundLogger, structlog.get_logger())


def _event_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The same fields lead every line, so that lines can be read as they pass by."""
    lead = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return {**lead, **event}
