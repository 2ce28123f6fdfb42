"""`odradek`: the command line.

This process never loads the broker: `serve` becomes the broker's process, in an interpreter that ignores
the user's own modules, and passes its options through untouched: help and errors come from the reader. So do
`export` and `import`. The commands that speak to a running broker (`odradek.commands`) are loaded when they are called.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

_PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

# What is loaded when it is called: where it is, and its line in the list of commands.
_LATE = {
    "audit": ("odradek.commands.audit", "Ask every rule of exactly once of a broker's files; a page says."),
    "clock": ("odradek.commands.clock", "Show the broker's time, and move it on."),
    "fault": ("odradek.commands.fault", "Stage failures: rules that lose, delay, hold, refuse, cut."),
    "node": ("odradek.commands.node", "Show the nodes of the cluster; kill, stop and start them."),
    "spark": (
        "odradek.commands.spark",
        "Look at exactly-once sinks, and end what they left open; run the pipeline; fetch Spark's jars.",
    ),
    "trace": ("odradek.commands.trace", "Show the requests that were made, and their answers."),
    "txn": ("odradek.commands.txn", "Show transactions: what state they are in, and how they got there."),
}


class _Commands(click.Group):
    """The list of commands costs the loading of none: what is loaded late stands in it with its line only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (_, sentence) in _LATE.items():
            self.add_command(click.Command(name, help=sentence))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name not in _LATE:
            return name, command, rest
        from importlib import import_module

        return name, getattr(import_module(_LATE[name][0]), name), rest


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="odradek", message="%(prog)s %(version)s")
def main() -> None:
    """A Kafka broker emulator for exactly-once work."""


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Start a broker (`odradek serve --help` lists the options)."""
    # The process is replaced, so that signals and the exit code are the broker's own, also as PID 1.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-I", "-m", "broker", *arguments])


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def export(arguments: tuple[str, ...]) -> None:
    """Copy a stopped broker's directory for Apache Kafka to start on (`odradek export --help`)."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-I", "-m", "broker.exchange.export", *arguments])


@main.command("import", context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def import_(arguments: tuple[str, ...]) -> None:
    """Take partitions that were copied from another cluster (`odradek import --help`)."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-I", "-m", "broker.exchange.importing", *arguments])


@main.command()
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="Whom to ask.  [default: the port that KAFKA_LISTENERS names on this machine, else localhost:9092]",
)
@click.option(
    "--timeout", default=3.0, show_default=True, metavar="SECONDS", help="How long to wait for the answer."
)
def health(bootstrap: str | None, timeout: float) -> None:
    """Ask a broker for its API versions; the exit code is 0 if it answers and 1 if not."""
    from odradek.health import HealthError, ask_api_versions, local_bootstrap

    bootstrap = bootstrap or local_bootstrap(os.environ)
    try:
        apis = ask_api_versions(bootstrap, timeout)
    except HealthError as error:
        raise click.ClickException(f"{bootstrap}: {error}") from None
    click.echo(f"{bootstrap} is healthy: it announces {apis} APIs")


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """Move a real data set exactly once while workers and broker are killed (needs odradek[demo])."""
    from odradek.commands.common import end_at_sigterm, needing

    with needing("demo", "demo"):
        from odradek.demo.run import main as demo_main
    end_at_sigterm()
    sys.exit(demo_main(list(arguments)))
