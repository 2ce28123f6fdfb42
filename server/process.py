"""Code shared by the server's processes: signals, and settings of the process before it serves clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from server.health import HealthSocket

HEALTH_SOCKET_VARIABLE: Final = "ODRADEK_HEALTH_SOCKET"
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
GC_THRESHOLDS: Final = (50_000, 20, 100)
KEPT_PIECE_BYTES: Final = 4 * 1024 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Largest number of freed bytes that the allocator may keep: the records of the next response need memory again."""


def prepare() -> None:
    """Prepare the process before most imports: from now on a signal ends it, and the garbage collector is off.

    ``collect_rarely`` switches the collector on again.
    """
    # The first process of a container has no default signal handlers. Those of the event loop are set later.
    for number in STOP_SIGNALS:
        signal.signal(number, _end_before_the_start)
    signal.signal(signal.SIGQUIT, _write_stacks)
    # Imports allocate much and free nothing. The collector is switched on again when the server is running.
    gc.disable()
    _forgo("hypothesis", "rich")


def _write_stacks(number: int, frame: FrameType | None) -> None:
    """Signal handler that writes stacks, as a JVM does on SIGQUIT. Imports the needed modules only when it is called."""
    from server.stacks import write_stacks

    write_stacks(number, frame)


def _end_before_the_start(number: int, _: FrameType | None) -> None:
    """Signal handler that ends the process before anything is open. `odradek serve` sets one even before its imports."""
    os.write(2, f"stopped by {signal.Signals(number).name} before the start\n".encode())
    os._exit(0)


EXTRAS: Final = dict.fromkeys(("cryptography", "jwt"), "odradek[security]")
"""Package -> the extra that installs the package. These packages are imported only for certain settings."""


def exit_code(work: Callable[[], int]) -> int:
    """Run ``work``, which parses a command line first, and return the process's exit code. Prints click's errors."""
    try:
        return work()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return fail(f"TLS and signed tokens need {error.name}, which is not installed: pip install '{extra}'")
    except Exception as error:
        if "click" not in sys.modules:  # then it cannot be one of click's exceptions
            raise
        import click

        if isinstance(error, click.exceptions.Exit):
            return error.exit_code
        if not isinstance(error, click.ClickException):
            raise
        error.show()
        return error.exit_code


def stop_signals() -> asyncio.Event:
    """An event that is set by the first SIGTERM or SIGINT."""
    from broker.logging import get_logger

    loop, told_to_stop = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: signal.Signals) -> None:
        told_to_stop.set()
        get_logger().info("stopping", signal=number.name)
        # The default handler of a second signal ends the process at once.
        loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return told_to_stop


def share_with_group(folder: Path | None) -> None:
    """Make new files writable for the group, if another user of the group may use the data directory later.

    In OpenShift each project has its own user, and all users are in group 0. A volume that belongs to a group has
    the setgid bit (`fsGroup` of a pod).
    """
    there = next((each for each in (folder, *folder.parents) if each.exists()), None) if folder else None
    is_shared = there is not None and bool(there.stat().st_mode & stat.S_ISGID)
    if is_shared or (os.getegid() == 0 and os.geteuid() != 0):
        os.umask(os.umask(0o077) & ~stat.S_IWGRP)


def answer_health_checks(describe: Callable[[], str]) -> HealthSocket | None:
    """Open the health socket if ``ODRADEK_HEALTH_SOCKET`` is set, as in the image. ``describe`` returns the response."""
    name = os.environ.get(HEALTH_SOCKET_VARIABLE)
    if not name:
        return None
    from server.health import HealthSocket

    return HealthSocket(name, describe)


def watch_stdin(told_to_stop: asyncio.Event) -> None:
    """Stop cleanly when standard input ends, as it does when the parent process ends, for whatever reason.

    A thread reads standard input: an event loop cannot wait for /dev/null or a file, which have an end too.
    """
    from broker.logging import get_logger

    loop = asyncio.get_running_loop()

    def stop() -> None:
        get_logger().info("stopping", reason="standard input has ended")
        told_to_stop.set()

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the process is ending already
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _forgo(*modules: str) -> None:
    """Make imports of these modules fail in this process. The modules that import them work without them.

    kio imports hypothesis if it is installed, and structlog imports rich. Together they take 150 ms of every start, and no
    broker uses them.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def collect_rarely() -> None:
    """Switch the garbage collector on, with a high threshold. Call this when the server is running."""
    # Objects that exist now stay alive, and requests create few cycles. Collections of all objects would cost more than
    # they free.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def keep_freed_memory() -> None:
    """Keep freed memory of large pieces (records of responses), so that its pages are used again. Needs the C core."""
    from protocol.core import compiled

    if compiled is not None:
        compiled.keep_freed_memory(KEPT_PIECE_BYTES, KEPT_BYTES)


def fail(reason: object) -> int:
    """Print why the server cannot start; returns the exit code."""
    from broker.logging import get_logger

    get_logger().error("cannot start", reason=str(reason))
    return 1


def loop_factory(load: Callable[[str], Any] = import_module) -> Any:
    """uvloop's factory, if it is installed; else None."""
    try:
        return load("uvloop").new_event_loop
    except ImportError:
        return asyncio.new_event_loop


def allow_open_files() -> None:
    """Raise the limit of open files to the maximum, as each connection and each segment in use is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def log_loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled failure: the exception handler of the event loop."""
    from broker.logging import get_logger

    get_logger().error("unhandled failure", what=context.get("message"), exc_info=context.get("exception"))
