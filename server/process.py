"""What the processes of the server share: how they are told to stop, and what they set up before they serve."""

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
"""What the allocator may keep of large pieces that were freed: records that are read for one response and the next."""


def prepare() -> None:
    """Before most imports: a signal ends the process, and the collector waits until ``collect_rarely``."""
    # The first process of a container has no signal handlers but its own; those of the loop come with the loop.
    for number in STOP_SIGNALS:
        signal.signal(number, _end_before_the_start)
    signal.signal(signal.SIGQUIT, _write_stacks)
    # Imports allocate much and free nothing. The collector is switched on again when the server is up.
    gc.disable()
    _forgo("hypothesis", "rich")


def _write_stacks(number: int, frame: FrameType | None) -> None:
    """As a JVM does on SIGQUIT; what that needs is imported when it is asked for."""
    from server.stacks import write_stacks

    write_stacks(number, frame)


def _end_before_the_start(number: int, _: FrameType | None) -> None:
    """Nothing is open yet, so there is nothing to stop. `odradek serve` has such a handler before its imports, too."""
    os.write(2, f"stopped by {signal.Signals(number).name} before the start\n".encode())
    os._exit(0)


EXTRAS: Final = dict.fromkeys(("cryptography", "jwt"), "odradek[security]")
"""The extra of each package that is imported with the first setting that needs it."""


def exit_code(work: Callable[[], int]) -> int:
    """That of the process, of work that begins with a command line: `click` without its own way of ending the process."""
    try:
        return work()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return fail(f"TLS and signed tokens need {error.name}, which is not installed: pip install '{extra}'")
    except Exception as error:
        if "click" not in sys.modules:  # so it is none of its exceptions
            raise
        import click

        if isinstance(error, click.exceptions.Exit):
            return error.exit_code
        if not isinstance(error, click.ClickException):
            raise
        error.show()
        return error.exit_code


def stop_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT."""
    from broker.logging import get_logger

    loop, told_to_stop = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: signal.Signals) -> None:
        told_to_stop.set()
        get_logger().info("stopping", signal=number.name)
        # A second signal ends the process at once.
        loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return told_to_stop


def share_with_group(folder: Path | None) -> None:
    """Let the group write what this process makes, where the next one may be another user of the group.

    OpenShift gives each project a user of its own, and all of them the group 0; a volume that belongs to a group has the
    bit setgid (`fsGroup` of a pod).
    """
    there = next((each for each in (folder, *folder.parents) if each.exists()), None) if folder else None
    is_shared = there is not None and bool(there.stat().st_mode & stat.S_ISGID)
    if is_shared or (os.getegid() == 0 and os.geteuid() != 0):
        os.umask(os.umask(0o077) & ~stat.S_IWGRP)


def answer_health_checks(describe: Callable[[], str]) -> HealthSocket | None:
    """From now on, if a variable names the socket: the programs of the image set it. ``describe``: what is served."""
    name = os.environ.get(HEALTH_SOCKET_VARIABLE)
    if not name:
        return None
    from server.health import HealthSocket

    return HealthSocket(name, describe)


def watch_stdin(told_to_stop: asyncio.Event) -> None:
    """Stop cleanly at the end of standard input. The parent holds its other end, however the parent ends.

    A thread reads it: a loop cannot wait for /dev/null or a file, which have an end too.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends already
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _forgo(*modules: str) -> None:
    """Make imports of these fail in this process, which those who import them here provide for.

    kio imports hypothesis wherever it is installed, and structlog rich: between them 150 ms of every start, for things
    that no broker uses.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def collect_rarely() -> None:
    """Once the server is up."""
    # What is alive once the broker is up stays alive, and what requests make has few cycles: pauses for looking at all
    # of it would cost more than what is found.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def keep_freed_memory() -> None:
    """Records of a response lie in large pieces: their pages are used again, where the core is compiled."""
    from protocol.core import compiled

    if compiled is not None:
        compiled.keep_freed_memory(KEPT_PIECE_BYTES, KEPT_BYTES)


def fail(reason: object) -> int:
    """Say why the server cannot start; the exit code."""
    from broker.logging import get_logger

    get_logger().error("cannot start", reason=str(reason))
    return 1


def loop_factory(load: Callable[[str], Any] = import_module) -> Any:
    """uvloop's, where it is installed."""
    try:
        return load("uvloop").new_event_loop
    except ImportError:
        return asyncio.new_event_loop


def allow_open_files() -> None:
    """As many as the system gives: each connection, and each segment that is in use, is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def log_loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler."""
    from broker.logging import get_logger

    get_logger().error("unhandled failure", what=context.get("message"), exc_info=context.get("exception"))
