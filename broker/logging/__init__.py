"""The log: one line for each event, rendered by structlog and written by a thread of its own."""

from broker.logging.configuration import (
    close,
    configure,
    get_logger,
    get_unfiltered_logger,
    print_on_a_terminal,
)

__all__ = ["close", "configure", "get_logger", "get_unfiltered_logger", "print_on_a_terminal"]
