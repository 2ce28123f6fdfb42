"""The log: one line for each event, written by a thread."""

from broker.logging.configuration import (
    close,
    configure,
    get_logger,
    get_unfiltered_logger,
    level,
    print_on_a_terminal,
    set_level,
)

__all__ = [
    "close",
    "configure",
    "get_logger",
    "get_unfiltered_logger",
    "level",
    "print_on_a_terminal",
    "set_level",
]
