"""``python -m broker`` in a checkout, ``odradek serve`` everywhere: one broker in this process, until SIGTERM or SIGINT.

What is not needed to refuse a bad command line is imported late.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker.cluster import Cluster
    from broker.config.settings import Settings
    from broker.control.server import ControlServer

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
GC_THRESHOLDS: Final = (50_000, 20, 100)


def main(arguments: list[str]) -> int:
    """Run a broker; the exit code of the process."""
    # The first process of a container has no signal handlers but its own; those of the loop come with the loop.
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    # Imports allocate much and free nothing. The collector is switched on again when the broker is up.
    gc.disable()
    _forgo("hypothesis", "rich")
    import click

    from broker.options import parse

    try:
        settings = parse(arguments)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return run(settings)


def run(settings: Settings) -> int:
    """Serve with these settings until told to stop."""
    from broker.injection import crash
    from broker.logging import configure, get_logger

    configure(settings.config.log_format, settings.config.log_level)
    for warning in settings.warnings:
        get_logger().warning(warning)
    try:
        crash.arm(settings.config.crash_points)
    except crash.UnknownCrashPoint as error:
        return _fail(error)
    _allow_open_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    from broker.cluster import Cluster, StartError

    asyncio.get_running_loop().set_exception_handler(_on_loop_exception)
    told_to_stop = _stop_signals()
    if settings.control is not None or settings.faults:
        # It takes a while, in which no client should have to wait.
        import broker.control.wiring  # noqa: F401
    cluster = Cluster(settings)
    try:
        await cluster.start()
    except StartError as error:
        return _fail(error)
    try:
        control = await _open_control(cluster)
    except StartError as error:
        await cluster.stop()
        return _fail(error)
    _collect_rarely()
    cluster.say_started(None if control is None else control.url)
    if settings.ends_with_stdin:
        _watch_stdin(told_to_stop)
    await told_to_stop.wait()
    if control is not None:
        await control.close()
    await cluster.stop()
    return 0


async def _open_control(cluster: Cluster) -> ControlServer | None:
    """The control port, if one was asked for; the rules of the start hold with and without one."""
    where = cluster.settings.control
    if where is None and not cluster.settings.faults:
        return None
    from broker.cluster import StartError
    from broker.control.wiring import ControlConfigError, control_of, open_control

    try:
        control = control_of(cluster)
        return None if where is None else await open_control(control, where)
    except ControlConfigError as error:
        raise StartError(str(error)) from error


def _stop_signals() -> asyncio.Event:
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


def _watch_stdin(told_to_stop: asyncio.Event) -> None:
    """Stop cleanly at the end of standard input. The parent holds its other end, however the parent ends."""
    from broker.logging import get_logger

    loop, stdin = asyncio.get_running_loop(), 0

    def read() -> None:
        if not os.read(stdin, 1024):
            loop.remove_reader(stdin)
            get_logger().info("stopping", reason="standard input has ended")
            told_to_stop.set()

    loop.add_reader(stdin, read)


def _forgo(*modules: str) -> None:
    """Make imports of these fail in this process, which those who import them here provide for.

    kio imports hypothesis wherever it is installed, and structlog rich: between them 150 ms of every start, for things
    that no broker uses.
    """
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def _collect_rarely() -> None:
    # What is alive once the broker is up stays alive, and what requests make has few cycles: pauses for looking at all
    # of it would cost more than what is found.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def _fail(reason: Exception) -> int:
    from broker.logging import get_logger

    get_logger().error("cannot start", reason=str(reason))
    return 1


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _allow_open_files() -> None:
    """As many as the system gives: each segment that is in use is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _on_loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    from broker.logging import get_logger

    get_logger().error("unhandled failure", what=context.get("message"), exc_info=context.get("exception"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
