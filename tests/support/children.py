"""What the processes that tests start inherit."""

import signal

RESET = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def _ignored(number: int, frame: object) -> None:
    """As the signal was before; but a handler, unlike an ignored signal, is not inherited."""


def reset_signals() -> None:
    """A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and children inherit that: a test that ends one
    by a signal would wait for ever. This process goes on ignoring them; what it starts has the defaults again."""
    for number in RESET:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignored)
