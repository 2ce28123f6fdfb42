"""``python -m server`` in a checkout, ``odradek serve`` everywhere else: one broker in this process, until SIGTERM or
SIGINT.

Modules that are not needed to reject a bad command line are imported late.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from broker import late_modules

if TYPE_CHECKING:
    from broker.cluster import Cluster
    from broker.config.settings import Settings
    from lab.control.listener import ControlListener
    from lab.spans import Spans


def main(arguments: list[str]) -> int:
    """Run a broker; returns the exit code of the process."""
    try:
        import resource  # noqa: F401
    except ModuleNotFoundError:  # Windows
        sys.exit("odradek: a broker runs on Linux and macOS; on Windows, in WSL 2 or in a container")
    gc.disable()  # until `process.collect_rarely`, because imports allocate much and free nothing
    late_modules.install()
    from server import process

    process.prepare()
    from server.options import parse

    return process.exit_code(lambda: run(parse(arguments)))


def run(settings: Settings) -> int:
    """Serve with these settings until the process is stopped; returns the exit code."""
    import asyncio

    from broker.injection import crash
    from broker.logging import configure, get_logger
    from server import process

    configure(settings.config.log_format, settings.config.log_level)
    for warning in settings.warnings:
        get_logger().warning(warning)
    try:
        crash.arm(settings.config.crash_points)
    except crash.UnknownCrashPoint as error:
        return process.fail(error)
    process.allow_open_files()
    process.share_with_group(settings.data_dir)
    load = import_module if settings.uses_tls else late_modules.import_without_tls
    with asyncio.Runner(loop_factory=process.loop_factory(load)) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    import asyncio

    from broker.cluster import Cluster, StartError
    from broker.cluster.announcing import announce_start
    from server import process

    asyncio.get_running_loop().set_exception_handler(process.log_loop_exception)
    told_to_stop = process.stop_signals()
    if settings.faults:
        # Imported before clients connect, because the import takes a while.
        import lab.control.wiring  # noqa: F401
    cluster = Cluster(settings)
    try:
        await cluster.start()
    except StartError as error:
        return process.fail(error)
    try:
        await _write_seed(cluster)
        spans = _send_spans(cluster)
        control = await _open_control(cluster)
    except StartError as error:
        await cluster.stop()
        return process.fail(error)
    process.collect_rarely()
    process.keep_freed_memory()
    health = process.answer_health_checks(partial(_where_it_listens, cluster))
    announce_start(cluster, None if control is None else control.url)
    if settings.ends_with_stdin:
        process.watch_stdin(told_to_stop)
    await told_to_stop.wait()
    if health is not None:
        health.close()
    if control is not None:
        await control.close()
    await cluster.stop()
    if spans is not None:
        await spans.close()
    return 0


def _where_it_listens(cluster: Cluster) -> str:
    from broker.cluster.addresses import where_nodes_listen  # imported at the first health check

    return where_nodes_listen(cluster.nodes.values())


async def _open_control(cluster: Cluster) -> ControlListener | None:
    """Open the control port if one is configured, and add the fault rules of the command line in any case."""
    if cluster.settings.control is None and not cluster.settings.faults:
        return None
    from broker.cluster import StartError
    from lab.control.access import ControlConfigError
    from lab.control.opening import open_control

    try:
        return await open_control(cluster)
    except ControlConfigError as error:
        raise StartError(str(error)) from error


async def _write_seed(cluster: Cluster) -> None:
    """Write the records of --seed. The fault rules of the command line, which are added later, do not affect them."""
    if cluster.settings.seed:
        from broker.cluster.startup_seed import write_seed

        await write_seed(cluster, is_new=cluster.is_new)


def _send_spans(cluster: Cluster) -> Spans | None:
    """Start to send spans of all requests, if a collector is configured."""
    endpoint = cluster.settings.config.otel_endpoint
    if not endpoint:
        return None
    from broker.cluster import StartError

    try:
        from lab.spans import Spans
    except ModuleNotFoundError as error:
        needs = "odradek.otel.endpoint needs the package opentelemetry-sdk: pip install 'odradek[otel]'"
        raise StartError(needs) from error
    return Spans(cluster.calls, endpoint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
