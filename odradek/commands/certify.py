"""`odradek certify`: run a job through every failure, and say which one it does not survive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from odradek.commands.common import HELP_NAMES, end_at_sigterm, needing, say, say_json
from odradek.durations import seconds
from odradek.errors import OdradekError

FAILED: Final = 1
UNJUDGED: Final = 2
"""Exit code: the job could not be judged; so does a wrong command line."""
REPORT: Final = "certificate"
"""Where the reports are written."""
_EVERY_S: Final = 5.0
_T = TypeVar("_T")


@click.group(invoke_without_command=True, context_settings=HELP_NAMES)
@click.option(
    "--job",
    metavar="COMMAND",
    help="What starts one instance; {bootstrap}, {instance}, {run} and {data} are filled in.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="So many instances.  [default: 1]")
@click.option("--topic", multiple=True, metavar="NAME:PARTITIONS", help="A topic that exists at the start.")
@click.option(
    "--seed-records", multiple=True, metavar="TOPIC=FILE", help="Records of a topic before the start, NDJSON."
)
@click.option("--output", multiple=True, metavar="TOPIC", help="A topic that the job writes.")
@click.option(
    "--until", metavar="WHEN", help="When a run is done: lag=0, exit, records=N, idle=TIME.  [default: lag=0]"
)
@click.option("--compare", type=click.Choice(["rows", "keyed", "ordered-by-key"]), help="[default: rows]")
@click.option("--ignore", multiple=True, metavar="FIELD", help="A field of JSON values that may differ.")
@click.option(
    "--check",
    metavar="COMMAND",
    help="Reads the outputs as NDJSON; its exit code says whether they are right.",
)
@click.option(
    "--restart",
    metavar="always|never|N",
    help="What a supervisor does with an instance that died.  [default: always]",
)
@click.option("--nodes", type=click.IntRange(1, 9), help="Nodes of the broker.  [default: 1]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the broker.")
@click.option(
    "--patience",
    metavar="TIME",
    help="A run in which the job asks for no change that long, beyond a reference run, is stuck.  [default: 10s]",
)
@click.option("--budget", metavar="TIME", help="Begin no run after this time.  [default: 10m]")
@click.option("--seed", type=int, help="Of the plans that are drawn.  [default: 1]")
@click.option("--stages", type=click.IntRange(1, 64), help="Runs side by side.  [default: 1]")
@click.option("--failures", type=click.IntRange(min=1), help="End after so many failures.")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="Options in a file.  [default: certify.toml, if there is one]",
)
@click.option("--report", metavar="DIRECTORY", help=f"Where the reports are written.  [default: {REPORT}]")
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
@click.pass_context
def certify(ctx: click.Context, /, path: Path | None, as_json: bool, **said: Any) -> None:
    """Certify a job: run it through every failure, and say which one it does not survive.

    The exit code is 0 if no failure was found, 1 if one was, and 2 if the job could not be judged.

    \b
    odradek certify --topic in:4 --topic out:4 --seed-records in=flights.ndjson \\
        --job 'java -jar job.jar --brokers {bootstrap}' --output out --budget 10m
    """
    with needing("certify", "certifier"):
        from odradek.certify import reports, settings
        from odradek.certify.certifier import Certifier
        from odradek.certify.report.certificate import as_dict
        from odradek.certify.report.text import summary
    end_at_sigterm()
    try:
        options = _options(path, said)
        if ctx.invoked_subcommand is not None and "job" not in options:
            options = reports.options(_report(options)) | options
        workload = settings.workload(options, (path or Path(settings.FILE)).resolve().parent)
        budget_s = seconds(str(options.get("budget") or "10m"))
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    ctx.obj = _Asked(options, workload)
    if ctx.invoked_subcommand is not None:
        return
    certificate = _judged(
        lambda: Certifier(
            workload,
            budget_s,
            seed=int(options.get("seed") or 1),
            stages=int(options.get("stages") or 1),
            failures_max=options.get("failures"),
            progress=_progress(),
        ).run()
    )
    directory = _report(options)
    reports.write(certificate, directory, options)
    if as_json:
        say_json(as_dict(certificate))
    else:
        say(summary(certificate))
        say(f"{directory}/certificate.html has the matrix and the timelines")
    raise SystemExit(0 if certificate.is_clean else FAILED)


@certify.command()
@click.argument("plan", metavar="PLAN")
@click.option("--times", type=click.IntRange(min=1), default=1, show_default=True, help="Try it so often.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each time.")
@click.pass_obj
def again(asked: _Asked, plan: str, times: int, as_json: bool) -> None:
    """Try a PLAN of a certificate again, by its id, or by its JSON.

    The options are those of the certificate, unless others are given before "again".
    """
    from odradek.certify import reports
    from odradek.certify.certifier import Certifier
    from odradek.certify.plan import from_json
    from odradek.certify.report.text import attempt

    directory = _report(asked.options)
    try:
        chosen = from_json(plan if plan.startswith("[") else reports.plan(directory, plan))
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    failed = 0
    for run, findings in _judged(lambda: Certifier(asked.workload, 0.0).again(chosen, times)):
        if as_json:
            say_json(
                {
                    "plan": chosen.id,
                    "reached": run.is_reached,
                    "findings": [each.as_dict() for each in findings],
                }
            )
        else:
            say(attempt(run, findings))
        failed += bool(findings)
    raise SystemExit(FAILED if failed else 0)


@dataclass(frozen=True)
class _Asked:
    """What the command line and the file say."""

    options: dict[str, Any]
    workload: Any


def _report(options: Mapping[str, Any]) -> Path:
    return Path(str(options.get("report") or REPORT))


def _progress() -> Callable[[Any, str], None]:
    from odradek.certify.report.text import progress_line

    last = [0.0]

    def progress(certificate: Any, text: str) -> None:
        if time.monotonic() - last[0] > _EVERY_S:
            last[0] = time.monotonic()
            click.echo(progress_line(certificate, text), err=True)

    return progress


def _judged(work: Callable[[], _T]) -> _T:
    """What comes of it; exit code 2 if the job cannot be judged."""
    try:
        return work()
    except (OdradekError, ValueError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(UNJUDGED) from None


def _options(path: Path | None, said: dict[str, Any]) -> dict[str, Any]:
    """Those of the file, then those of the command line."""
    from odradek.certify import settings

    said["set"] = said.pop("settings")
    given = {name.replace("_", "-"): value for name, value in said.items() if value not in (None, ())}
    file = path or Path(settings.FILE)
    found = settings.read(file) if path is not None or file.exists() else {}
    return {**found, **given}
