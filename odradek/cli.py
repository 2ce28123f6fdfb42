"""`odradek`: the command line.

This process never imports the broker. `serve` replaces this process by the broker's, in an interpreter that ignores the
user's own modules. The options are passed on unchanged, and the broker's process prints help and errors. `export` and
`import` work in the same way. The commands for a running broker (`odradek.commands`) are imported when they are called.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from odradek._server import Program, command, core
from odradek._server.__main__ import release_signals
from odradek.commands.groups import CommandGroup

_PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

# Commands that are imported when they are called: their module, and their line in the list of commands.
_LATE = {
    "certify": (
        "odradek.commands.certify",
        "Run a job through every failure, and report which ones it does not survive.",
    ),
    "audit": ("odradek.commands.audit", "Audit a broker's files for violations of exactly-once."),
    "chaos": (
        "odradek.commands.chaos",
        "Kill nodes, cut links, lose responses and more at random, while your own job runs against the broker.",
    ),
    "clock": ("odradek.commands.clock", "Show the broker's clock, and advance it."),
    "completion": (
        "odradek.commands.completion",
        "Install completion of commands and options by Tab, for bash, zsh and fish.",
    ),
    "fault": ("odradek.commands.fault", "Inject faults: lose, delay, hold or refuse requests, cut links."),
    "lint": (
        "odradek.commands.lint",
        "Report dangerous uses of Kafka by a job, from the trace of its requests.",
    ),
    "node": (
        "odradek.commands.node",
        "List the nodes and their partitions; kill, stop and start nodes, move leaders.",
    ),
    "reset": ("odradek.commands.reset", "Reset a broker to the state after its start."),
    "snapshot": ("odradek.commands.snapshot", "Snapshot the state of a running broker, and restore it."),
    "spark": (
        "odradek.commands.spark",
        "Manage exactly-once sinks, run the pipeline, download Spark's jars.",
    ),
    "trace": ("odradek.commands.trace", "Show the requests that clients made, and the responses."),
}

# Commands that speak Kafka's protocol, also to Apache Kafka. They need the server's packages and run in its interpreter
# (`tools`).
_TOOLS = {
    "acl": "List, add and remove ACLs, of a cluster with an authorizer.",
    "bench": "Measure the throughput and latency of a broker: produce, fetch, transactions.",
    "consume": "Print the records of topics, with the outcome of their transactions.",
    "craft": "Write the log of a partition from a short description, to test programs that read segment files.",
    "dump": "Print the batches and records of segment files, without a broker.",
    "explain": "Explain where readers of a partition stop, why a group lags, what a transaction waits for.",
    "group": "List, describe and delete consumer and share groups; show their lag, reset their offsets, rebalance them.",
    "produce": "Write records, also in a transaction.",
    "seed": "Write records in transactions that commit and abort, from lines of JSON.",
    "topic": "List, create, describe, trim and delete topics; show and set their settings.",
    "txn": "List and describe transactions, find hanging ones, commit or abort one, leave one open.",
    "user": "List, add and remove users who log in by SCRAM.",
}

# These commands replace this process by the server's interpreter, which then unblocks the signals that `odradek.program`
# has blocked.
_EXECUTED = ("serve", "proxy", "export", "import", "kafka-tool", *_TOOLS)


class _Commands(CommandGroup):
    """The top-level commands, listed from the lines in `_LATE` and `_TOOLS` without importing any command."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (_, sentence) in _LATE.items():
            self.add_command(click.Command(name, help=sentence))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in _TOOLS and ctx.resilient_parsing:
            # The shell asks for completions: only the interpreter of the command knows its options.
            _exec("tool", (name, *rest))
        if name not in _LATE:
            return name, command, rest
        from importlib import import_module

        found: click.Command = getattr(import_module(_LATE[name][0]), name)
        if ctx.resilient_parsing:
            from odradek.commands.completing import attach, from_control_port

            attach(found, name, from_control_port)
        return name, found, rest


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"odradek {version('odradek')} ({core()})")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """A Kafka broker emulator for testing exactly-once semantics."""
    if ctx.invoked_subcommand not in _EXECUTED:
        release_signals()


def _exec(program: Program, arguments: tuple[str, ...]) -> None:
    """Replace this process by the program.

    The program then gets the signals, and its exit code is that of the process, also if the process is PID 1.
    """
    sys.stdout.flush()
    os.execv(sys.executable, command(program, *arguments))


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Start a broker (`odradek serve --help` lists the options)."""
    _exec("serve", arguments)


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def proxy(arguments: tuple[str, ...]) -> None:
    """Start a proxy in front of any Kafka cluster, with faults, trace and the page (`odradek proxy --help` lists the
    options).
    """
    _exec("proxy", arguments)


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def export(arguments: tuple[str, ...]) -> None:
    """Export a stopped broker's data directory for Apache Kafka."""
    _exec("export", arguments)


@main.command("import", context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def import_(arguments: tuple[str, ...]) -> None:
    """Import partition directories that were copied from another cluster."""
    _exec("import", arguments)


def _tool(name: str, sentence: str, *, hidden: bool = False) -> None:
    @main.command(name, help=sentence, hidden=hidden, context_settings=_PASS_THROUGH, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments: tuple[str, ...]) -> None:
        _exec("tool", (name, *arguments))


for _name, _sentence in _TOOLS.items():
    _tool(_name, _sentence)
# The scripts in the image, such as `kafka-topics.sh`, call this command.
_tool("kafka-tool", "Run one of Kafka's own tools by its name and options.", hidden=True)


@main.command()
@click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    metavar="HOST:PORT",
    help="Address of the broker.  [default: the port in KAFKA_LISTENERS on this machine, else localhost:9092; in the image, "
    "without other options, the listener of the container's own broker]",
)
@click.option(
    "--timeout", default=3.0, show_default=True, metavar="SECONDS", help="How long to wait for the response."
)
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A properties file for the client, as for Kafka's tools: security.protocol, ssl.*.  [default: PLAINTEXT, then TLS "
    "with any certificate; no listener requires a login for ApiVersions]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def health(bootstrap: str | None, timeout: float, command_config: Path | None, as_json: bool) -> None:
    """Send ApiVersions to a broker. The exit code is 0 if it responds, else 1."""
    from odradek.commands.waiting import telling_waits
    from odradek.errors import BadClientSettings, Untrusted
    from odradek.health import HealthError, ask_api_versions, local_bootstrap
    from odradek.pending import waiting_for

    bootstrap = bootstrap or local_bootstrap(os.environ)
    try:
        security = None
        if command_config is not None:
            from odradek.client_security import client_security, properties_of

            security = client_security(properties_of(command_config))
        with telling_waits(), waiting_for("ApiVersions", bootstrap):
            apis = ask_api_versions(bootstrap, timeout, security)
    except BadClientSettings as error:
        raise click.UsageError(str(error)) from None
    except (HealthError, Untrusted) as error:
        raise click.ClickException(f"{bootstrap}: {error}") from None
    if as_json:
        from odradek.printable import printable_json

        click.echo(printable_json({"bootstrap_servers": bootstrap, "apis": apis}))
    else:
        click.echo(f"{bootstrap} is healthy: it announces {apis} APIs")


@main.command(context_settings=_PASS_THROUGH, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """Run the exactly-once demo, which kills its workers and its broker."""
    from odradek.commands.common import end_at_sigterm, needing

    with needing("demo", "demo"):
        from odradek.demo.run import main as demo_main
    end_at_sigterm()
    sys.exit(demo_main(list(arguments)))
