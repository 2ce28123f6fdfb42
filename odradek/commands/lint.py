"""`odradek lint`: report dangerous uses of Kafka in a trace, without certifying the job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import click

from odradek.certify.exchanges import Entry, exchanges, read
from odradek.certify.linting import Occurrence, observed, occurrences
from odradek.certify.lints import Evidence
from odradek.certify.report.github import workflow_commands
from odradek.certify.report.lints import as_dict, text
from odradek.certify.report.notices import of_occurrences
from odradek.certify.report.sarif import sarif
from odradek.commands.common import HELP_NAMES, control_options, say, say_json
from odradek.commands.waiting import telling_waits
from odradek.errors import OdradekError
from odradek.printable import printable_lines
from odradek.remote import ENTRIES_MAX, connect

FOUND: Final = 1
UNREADABLE: Final = 2
"""Exit code if there is no trace, and for an invalid command line."""


@click.command(context_settings=HELP_NAMES)
@click.argument("file", required=False)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="TOPIC",
    help="A topic that the job reads.  [default: the topics whose offsets a group commits]",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="TOPIC",
    help="A topic that the job writes.  [default: the topics that clients write, except inputs]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
    help="github: annotations of GitHub Actions; sarif: for code hosts and editors.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@control_options
def lint(
    file: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    form: str,
    as_json: bool,
    control: str | None,
    token: str | None,
) -> None:
    """Report dangerous uses of Kafka by a job, from the trace of its requests.

    The trace is that of a running broker, or a FILE with the output of "odradek trace --json"; - is standard input.
    The exit code is 0 if nothing was found, 1 if something was, and 2 if there is no trace.

    \b
    odradek lint --control http://127.0.0.1:18092
    odradek lint trace.ndjson
    """
    entries = _entries(file, control, token)
    if not entries:
        _unreadable("the trace is empty: start it with odradek trace --start, then run the job")
    evidence = observed(exchanges(entries), inputs, outputs)
    found = occurrences(evidence)
    _say(evidence, found, "json" if as_json else form)
    raise SystemExit(FOUND if found else 0)


def _say(evidence: Evidence, found: Sequence[Occurrence], form: str) -> None:
    if form == "json":
        say_json(as_dict(evidence, found))
    elif form == "sarif":
        click.echo(sarif(of_occurrences(found)), nl=False)
    elif form == "github":
        click.echo(printable_lines(workflow_commands(of_occurrences(found))), nl=False)
    else:
        say(text(evidence, found))


def _entries(file: str | None, control: str | None, token: str | None) -> list[Entry]:
    try:
        if file is None:
            remote = connect(control, token)
            with telling_waits(remote):
                return list(remote.trace.entries(limit=ENTRIES_MAX))
        lines = sys.stdin if file == "-" else Path(file).read_text(encoding="utf-8").splitlines()
        return read(lines)
    except (OdradekError, OSError, ValueError) as error:
        _unreadable(f"{file}: {error}" if isinstance(error, ValueError) else str(error))


def _unreadable(message: str) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise SystemExit(UNREADABLE)
