"""A request that continues in a callback gets a response even if the callback fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from broker.logging import get_logger
from broker.transactions.transaction import Answer
from protocol.errors import ErrorCode

log_events = get_logger()

Done = Callable[[Answer], object]
Arguments = ParamSpec("Arguments")


def with_error_response(done: Done, callback: Callable[Arguments, object]) -> Callable[Arguments, None]:
    """``callback``; if it raises, the exception is logged and the client gets UNKNOWN_SERVER_ERROR.

    For callbacks that run outside the turn of the request: a handler's own exceptions are answered by the connection.
    """

    def guarded(*arguments: Arguments.args, **more: Arguments.kwargs) -> None:
        try:
            callback(*arguments, **more)
        except Exception:
            answer_exception(done)

    return guarded


def answer_exception(done: Done) -> None:
    """The answer to a request whose callback has raised what is being handled."""
    log_events.exception("a request to the transaction coordinator failed")
    done(Answer(ErrorCode.unknown_server_error))
