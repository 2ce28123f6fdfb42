"""``python -m broker.proxy`` in a checkout, ``odradek proxy`` everywhere: one proxy, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from broker import process

if TYPE_CHECKING:
    from broker.proxy.options import ProxySettings


def main(arguments: list[str]) -> int:
    """Run a proxy; the exit code of the process."""
    process.prepare()
    import click

    from broker.proxy.options import parse

    try:
        settings = parse(arguments)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return run(settings)


def run(settings: ProxySettings) -> int:
    """Relay with these settings until told to stop."""
    from broker.logging import configure

    configure(settings.log_format, settings.log_level)
    process.allow_open_files()
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: ProxySettings) -> int:
    from broker.proxy.proxy import Proxy, StartError

    asyncio.get_running_loop().set_exception_handler(process.log_loop_exception)
    told_to_stop = process.stop_signals()
    if settings.ends_with_stdin:
        process.watch_stdin(told_to_stop)
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
    process.collect_rarely()
    proxy.say_started(None)
    await stopping
    await proxy.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
