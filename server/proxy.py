"""``python -m server.proxy`` in a checkout, ``odradek proxy`` everywhere else: one proxy, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from server import process

if TYPE_CHECKING:
    from lab.control.listener import ControlListener
    from proxy.options import ProxySettings
    from proxy.proxy import Proxy


def main(arguments: list[str]) -> int:
    """Run a proxy; returns the exit code of the process."""
    process.prepare()
    from proxy.options import parse

    return process.exit_code(lambda: run(parse(arguments)))


def run(settings: ProxySettings) -> int:
    """Relay with these settings until the process is stopped; returns the exit code."""
    from broker.logging import configure

    configure(settings.log_format, settings.log_level)
    process.allow_open_files()
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: ProxySettings) -> int:
    from proxy.proxy import Proxy, StartError

    asyncio.get_running_loop().set_exception_handler(process.log_loop_exception)
    told_to_stop = process.stop_signals()
    if settings.ends_with_stdin:
        process.watch_stdin(told_to_stop)
    if settings.control is not None or settings.faults:
        # Imported before clients connect, because the import takes a while.
        from proxy import looking  # noqa: F401
    proxy = Proxy(settings)
    starting = asyncio.ensure_future(proxy.start())
    stopping = asyncio.ensure_future(told_to_stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await proxy.stop()
        return 0
    try:
        await starting
    except StartError as error:
        return process.fail(error)
    try:
        control = await _open_control(proxy)
    except StartError as error:
        await proxy.stop()
        return process.fail(error)
    process.collect_rarely()
    process.keep_freed_memory()
    health = process.answer_health_checks(lambda: f"the proxy at {proxy.bootstrap_servers}")
    proxy.say_started(None if control is None else control.url)
    await stopping
    if health is not None:
        health.close()
    if control is not None:
        await control.close()
    await proxy.stop()
    return 0


async def _open_control(proxy: Proxy) -> ControlListener | None:
    """Open the control port if one is configured, and add the fault rules of the command line in any case."""
    where = proxy.settings.control
    if where is None and not proxy.settings.faults:
        return None
    from lab.control.access import ControlConfigError
    from proxy.looking import looking_of, open_control
    from proxy.proxy import StartError

    try:
        looking = looking_of(proxy)
        return None if where is None else await open_control(proxy, looking, where)
    except ControlConfigError as error:
        raise StartError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
