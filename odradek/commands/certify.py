"""`odradek certify`: run a job through every failure, and report which ones it does not survive."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from odradek.commands.common import HELP_NAMES, end_at_sigterm, needing, say, say_json
from odradek.errors import OdradekError
from odradek.printable import printable_lines

UNJUDGED: Final = 2
"""Exit code of a job that cannot be judged, and of an invalid command line."""
INTERRUPTED: Final = 130
REPORT: Final = "certificate"
"""Default directory of the reports."""
_EVERY_S: Final = 5.0
_WRITES_EVERY_S: Final = 10.0
"""Maximum interval between two updates of the reports on disk, in seconds."""


@click.group(invoke_without_command=True, context_settings=HELP_NAMES)
@click.option(
    "--job",
    metavar="COMMAND",
    help="Command that starts one instance, with the placeholders {bootstrap}, {instance}, {run} and {data}.",
)
@click.option(
    "--job-container",
    metavar="IMAGE",
    help="Run each instance as a container of this image; without --job, with the image's own command. "
    "Options of docker create may precede the image.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of instances.  [default: 1]")
@click.option(
    "--topic",
    multiple=True,
    metavar="NAME:PARTITIONS[:KEY=VALUE,...]",
    help="Topic to create before the start.",
)
@click.option(
    "--seed-records",
    multiple=True,
    metavar="TOPIC=FILE",
    help="Input records to write before the start, NDJSON.",
)
@click.option(
    "--output",
    multiple=True,
    metavar="TOPIC",
    help="What the job writes: a topic, postgres:SELECT ..., http:POST /path, or files:PATTERN.",
)
@click.option(
    "--stage",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="A service besides Kafka, behind a proxy that injects faults: postgres=DSN, http=URL, tcp=HOST:PORT. The job "
    "reaches it at {postgres}, {http}, {tcp}.",
)
@click.option(
    "--stage-setup",
    multiple=True,
    metavar="NAME=FILE",
    help="SQL script that prepares the database with which each run begins.",
)
@click.option(
    "--stage-reset",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Shell command that returns the service to its first state before each run.",
)
@click.option(
    "--input",
    multiple=True,
    metavar="NAME:WHERE=FILE",
    help="Input that is not in a topic: postgres:TABLE=FILE, http:POST URL=FILE, files:DIRECTORY=FOLDER.",
)
@click.option(
    "--until",
    metavar="WHEN",
    help="When a run is done: lag=0, exit, records=N, idle=TIME, check.  [default: selected by the run without faults]",
)
@click.option(
    "--compare",
    type=click.Choice(["rows", "keyed", "ordered-by-key", "none"]),
    help="How outputs are compared; none: only the check decides.  [default: rows]",
)
@click.option(
    "--compare-also",
    multiple=True,
    type=click.Choice(["partition", "timestamp"]),
    help="Also compare this, besides topic, key, value and headers.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="FIELD",
    help="A field of JSON values that may differ, or 'header NAME'.",
)
@click.option(
    "--expect",
    metavar="FILE",
    help="The expected outputs, NDJSON.  [default: the outputs of a run without faults]",
)
@click.option(
    "--check",
    metavar="COMMAND",
    help="Command that reads the outputs as NDJSON, or the file {parquet}, or files of the job in {data}, and whose exit "
    "code says whether they are correct: 0 yes, 75 not yet.",
)
@click.option(
    "--restart",
    metavar="always|on-failure|never|N",
    help="After which exits an instance is restarted; N: at most N times, after failures.  "
    "[default: always; on-failure with --until exit]",
)
@click.option(
    "--grace",
    metavar="TIME",
    help="Time from SIGTERM to SIGKILL at the end of a run.  [default: 500ms, if the job reacts to SIGTERM]",
)
@click.option("--nodes", type=click.IntRange(1, 9), help="Number of nodes of the broker.  [default: 1]")
@click.option(
    "--upstream",
    metavar="HOST:PORT,...",
    help="Put a proxy in front of this cluster instead of starting a broker: faults affect requests and responses only.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the broker.")
@click.option(
    "--group-config",
    multiple=True,
    metavar="GROUP:NAME=VALUE",
    help="A setting of a group, such as jobs:share.auto.offset.reset=earliest.",
)
@click.option(
    "--delivery",
    type=click.Choice(["at-least-once", "exactly-once"]),
    help="What the job promises. With at-least-once, outputs of records that a share group delivered again may be "
    "duplicated.  [default: at-least-once if a share group consumes the input, otherwise exactly-once]",
)
@click.option(
    "--allow-rejected",
    is_flag=True,
    help="Outputs of records that the job rejected, or that reached the delivery limit, may be missing.",
)
@click.option(
    "--patience",
    metavar="TIME",
    help="A run whose job requests no change for this long, in addition to a reference run, is stuck.  [default: 10s]",
)
@click.option(
    "--budget",
    metavar="TIME",
    help="Begin no run with faults after this time.  [default: 10m, with --profile pr 1m]",
)
@click.option(
    "--profile",
    type=click.Choice(["pr", "full"]),
    help="pr: only what a certificate needs, within the budget; full: everything else too.  [default: full]",
)
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(["incomplete", "no-promise"]),
    help="Exit with code 0 for this verdict too.",
)
@click.option(
    "--leave-out", multiple=True, metavar="FAULT", help="Do not try this fault; the certificate says so."
)
@click.option("--seed", type=int, help="Seed of the random plans.  [default: 1]")
@click.option("--stages", type=click.IntRange(1, 64), help="Number of parallel runs.  [default: 1]")
@click.option("--failures", type=click.IntRange(min=1), help="End after this number of failures.")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="File with options.  [default: certify.toml, if it exists]",
)
@click.option("--report", metavar="DIRECTORY", help=f"Directory of the reports.  [default: {REPORT}]")
@click.option(
    "--github/--no-github",
    help="Print annotations for GitHub Actions.  [default: if GITHUB_ACTIONS=true]",
    default=lambda: os.environ.get("GITHUB_ACTIONS") == "true",
)
@click.option(
    "--live-port",
    type=click.IntRange(0, 65535),
    help="Show the growing certificate at this port of 127.0.0.1; 0 selects a free port.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
@click.pass_context
def certify(
    ctx: click.Context,
    /,
    path: Path | None,
    github: bool,
    live_port: int | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Certify a job: run it through every failure, and report which ones it does not survive.

    \b
    The exit code is the verdict:
      0    exactly once: no fault that a certificate needs caused a failure
      1    failed: records were lost, duplicated, changed, or a run was stuck
      2    not judged: without faults the job does not end, or outputs differ
      3    incomplete: no failure, but fewer faults tried than needed
      4    no promise: no mechanism was seen that could make it exactly once
      130  interrupted

    \b
    odradek certify --topic in:4 --topic out:4 --seed-records in=flights.ndjson \\
        --job 'java -jar job.jar --brokers {bootstrap}' --output out --budget 10m
    """
    with needing("certify", "certifier"):
        from odradek.certify import reports, settings
        from odradek.certify.certifier import Certifier
    end_at_sigterm()
    try:
        options = _options(path, said)
        if ctx.invoked_subcommand is not None and "job" not in options:
            options = reports.options(_report(options)) | options
        folder = (path or Path(settings.FILE)).resolve().parent
        directory, file = _report(options), _file(path)
        screen = _Screen(directory, options, file)
        certifier = Certifier.of(options, folder, observer=screen)
        accepted = settings.accepted(options)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    ctx.obj = _GivenOptions(options, certifier)
    if ctx.invoked_subcommand is not None:
        return
    with _judging(), reports.alone(directory), _live(certifier.certificate, live_port):
        certificate = certifier.run()
    reports.write(certificate, directory, options, file)
    _say(certificate, directory, as_json)
    if github:
        _annotate(certificate, file)
    raise SystemExit(0 if certificate.verdict in accepted else certificate.verdict.exit_code)


@contextlib.contextmanager
def _live(certificate: Any, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from odradek.certify.live import Live

    try:
        live = Live(certificate, port)
    except OSError as error:
        raise click.UsageError(f"--live-port {port}: {error}") from None
    with live:
        click.echo(f"the certificate so far: {live.url}", err=True)
        yield


def _say(certificate: Any, directory: Path, as_json: bool) -> None:
    from odradek.certify.report.certificate import as_dict
    from odradek.certify.report.text import summary

    if as_json:
        say_json(as_dict(certificate))
    else:
        say(summary(certificate))
        say(f"matrix and timelines: {directory}/certificate.html")


def _annotate(certificate: Any, file: str | None) -> None:
    """Print annotations to standard error: GitHub's runner reads both outputs, and standard output may be JSON."""
    from odradek.certify.report.github import workflow_commands
    from odradek.certify.report.notices import of_certificate

    click.echo(printable_lines(workflow_commands(of_certificate(certificate), file)), err=True, nl=False)


def _file(path: Path | None) -> str | None:
    """Path of certify.toml relative to the root of the user's project: GitHub's checkout, else the working directory."""
    from odradek.certify import settings

    file = path or Path(settings.FILE)
    if not file.exists():
        return None
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.curdir)
    return Path(os.path.relpath(file, root)).as_posix()


@certify.command()
@click.argument("plan", metavar="PLAN")
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Maximum number of tries; ends earlier if the failure comes back.",
)
@click.option(
    "--hold-at-fault",
    is_flag=True,
    help="Hold the run before each fault until Enter is pressed, so that a debugger can be attached to the job.",
)
@click.option(
    "--timelines", is_flag=True, help="Also print the timelines of both ends, and of each transactional id."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per try.")
@click.pass_obj
def again(
    asked: _GivenOptions, plan: str, times: int, hold_at_fault: bool, timelines: bool, as_json: bool
) -> None:
    """Run a PLAN of a certificate again, given by its id or as JSON, until the failure comes back.

    The options are those of the certificate, unless others are given before "again".

    \b
    The exit code is
      0    the failure did not come back in any try
      1    the failure came back: the job is wrong under this plan
      2    not judged: without faults the job does not end, or outputs differ
      3    not reached: no try injected all faults of the plan with an effect
    """
    from odradek.certify import reports
    from odradek.certify.certifier import tried_again
    from odradek.certify.plans.plan import from_json
    from odradek.certify.report.text import attempt

    directory = _report(asked.options)
    try:
        chosen = from_json(plan if plan.startswith("[") else reports.plan(directory, plan))
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    on_hold = _hold if hold_at_fault else None

    def tries() -> Iterator[Any]:
        for run, findings, why in asked.certifier.again(chosen, 1 if hold_at_fault else times, on_hold):
            if as_json:
                said = {"plan": chosen.id, "reached": run.is_reached, "effective": run.is_effective}
                reasons = [each.as_dict() for each in why]
                say_json({**said, "findings": [each.as_dict() for each in findings], "diagnosis": reasons})
            else:
                say(attempt(run, findings, [each.sentence for each in why], timelines=timelines))
            yield run, findings

    with _judging():
        outcome = tried_again(tries())
    if not as_json:
        say(outcome.value)
    raise SystemExit(outcome.exit_code)


def _hold(held: object) -> None:
    """Print the fault that is held, and wait for the user.

    The user presses Enter at a terminal; another program closes standard input.
    """
    click.echo(printable_lines(str(held)), err=True)
    if sys.stdin.isatty():
        click.echo("press Enter to inject the fault", err=True)
        sys.stdin.readline()
    else:
        click.echo("close standard input to inject the fault", err=True)
        sys.stdin.read()


@dataclass(frozen=True)
class _GivenOptions:
    """The merged options of certify.toml and the command line, and the certifier that they describe."""

    options: dict[str, Any]
    certifier: Any


def _report(options: Mapping[str, Any]) -> Path:
    return Path(str(options.get("report") or REPORT))


class _Screen:
    """The observer that prints the progress to standard error, and keeps the reports on disk up to date."""

    def __init__(self, directory: Path, options: Mapping[str, Any], file: str | None) -> None:
        self._directory, self._options, self._file = directory, options, file
        self._shown = self._written = time.monotonic()

    def says(self, text: str) -> None:
        click.echo(printable_lines(text), err=True)

    def begins(self, certificate: Any, budget_s: float) -> None:
        from odradek.certify.report.text import opening

        click.echo(opening(certificate, budget_s), err=True)

    def progress(self, certificate: Any, text: str) -> None:
        from odradek.certify.report.text import progress_line

        now = time.monotonic()
        if now - self._shown > _EVERY_S:
            self._shown = now
            click.echo(progress_line(certificate, text), err=True)
        if now - self._written > _WRITES_EVERY_S:
            self._write(certificate)

    def found(self, certificate: Any, failure: Any) -> None:
        from odradek.certify.report.text import failed

        click.echo(printable_lines("\n".join(failed(failure))), err=True)
        self._write(certificate)

    def _write(self, certificate: Any) -> None:
        from odradek.certify import reports

        self._written = time.monotonic()
        reports.write(certificate, self._directory, self._options, self._file)


@contextlib.contextmanager
def _judging() -> Iterator[None]:
    """Context manager: exit code 2 if the job cannot be judged."""
    try:
        yield
    except (OdradekError, ValueError) as error:
        click.echo(printable_lines(f"Error: {error}"), err=True)
        raise SystemExit(UNJUDGED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _options(path: Path | None, said: dict[str, Any]) -> dict[str, Any]:
    """Return the options of certify.toml (or of ``path``), overridden by ``said``, those of the command line."""
    from odradek.certify import settings

    said["set"] = said.pop("settings")
    given = {name.replace("_", "-"): value for name, value in said.items() if value not in (None, ())}
    file = path or Path(settings.FILE)
    found = settings.read(file) if path is not None or file.exists() else {}
    return {**found, **given}
