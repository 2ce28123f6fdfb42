"""Signal handlers for the test process, so that its child processes start with the default signal dispositions."""

import signal

RESET = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def _ignored(number: int, frame: object) -> None:
    """Ignore the signal. Unlike SIG_IGN, a handler is not inherited by child processes."""


def reset_signals() -> None:
    """Replace SIG_IGN by a handler that does nothing, so that child processes have the default dispositions.

    Child processes inherit ignored signals: SIGINT in background jobs of a shell, SIGHUP under nohup. A test that ends a
    child by such a signal would hang.
    """
    for number in RESET:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignored)
