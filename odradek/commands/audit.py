"""`odradek audit`: checks a broker's files for violations of exactly-once. spark-submit also runs this module."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.commands.common import HELP_NAMES, as_json, needing, say, say_json
from odradek.errors import OdradekError
from odradek.printable import printable, printable_lines

if TYPE_CHECKING:
    from odradek.spark.audit import Report
    from odradek.spark.audit.progress import Shown

_NAMED_MAX: Final = 10
"""Maximum number of findings printed; the report lists more, the Parquet table all."""


class _Unusable(click.ClickException):
    """The error for an audit that could not run: exit code 2. Exit code 1 means that a rule is violated."""

    exit_code = 2


@click.command(context_settings=HELP_NAMES)
@click.argument("data_dir", metavar="DATA_DIR")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the report and the Parquet tables.",
)
@click.option(
    "--unique",
    multiple=True,
    metavar="TOPIC=EXPRESSION",
    help="A business key that is unique among the committed records of a topic, as a Spark SQL expression over key, value"
    " and headers. Can be repeated for other topics.",
)
@click.option(
    "--producer-id-expiration-ms",
    type=click.IntRange(min=1),
    default=86_400_000,
    show_default=True,
    metavar="MS",
    help="The brokers' producer.id.expiration.ms: brokers forget producers that have been idle for longer.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Also decode every record, and compare every entry of the index files with its segment.",
)
@as_json
def audit(
    data_dir: str,
    out: Path,
    unique: tuple[str, ...],
    producer_id_expiration_ms: int,
    deep: bool,
    as_json: bool,
) -> None:
    """Audit the files in DATA_DIR for violations of exactly-once.

    DATA_DIR is a data directory of Odradek, a log.dir of Apache Kafka, or a partition's directory; separate several with
    commas. The audit writes OUT/report.html and a Parquet table for each query.
    The exit code is 0 if no rule is violated, 1 if one is, and 2 if the audit could not run.
    """
    keys = dict(_key(text) for text in unique)
    try:
        with needing("audit", "audit", _Unusable):
            from odradek.spark.audit.progress import shown

            with shown() as say:
                report = _audit(
                    data_dir,
                    out,
                    say,
                    unique=keys,
                    producer_id_expiration_ms=producer_id_expiration_ms,
                    deep=deep,
                )
    except OdradekError as error:
        raise _Unusable(printable_lines(str(error))) from None
    if as_json:
        say_json(_view(report, out))
    else:
        _say(report, out)
    click.get_current_context().exit(report.exit_code)


def _key(text: str) -> tuple[str, str]:
    topic, separator, expression = text.partition("=")
    if not (topic and separator and expression):
        raise click.BadParameter(f"{text!r} is not TOPIC=EXPRESSION", param_hint="--unique")
    return topic, expression


def _audit(data_dir: str, out: Path, say: Shown, **options: Any) -> Report:
    from odradek.spark import environment
    from odradek.spark.audit import run, tables
    from odradek.spark.audit.progress import watched

    # Report a wrong path before Spark starts, which takes seconds.
    tables.find(data_dir)
    say("starting Spark")
    session = environment.session("odradek audit")
    with watched(session, say):
        return run.audit(session, data_dir, out, say=say, **options)


def _view(report: Report, out: Path) -> dict[str, Any]:
    return {
        "verdict": report.verdict,
        "live": report.live,
        "violations": report.violations,
        "warnings": report.warnings,
        "findings": [asdict(each) for each in report.findings],
        "report": str(out / "report.html"),
    }


def _say(report: Report, out: Path) -> None:
    if report.live:
        click.echo("A broker is running on this directory: the audit shows its state at one moment.")
    say(report.verdict)
    for finding in report.findings[:_NAMED_MAX]:
        say(printable(f"  {finding.severity}: {finding.name} in {finding.where}: {finding.detail}"))
        if finding.command is not None:
            say(printable(f"    {finding.command}"))
    if (more := report.violations + report.warnings - _NAMED_MAX) > 0:
        click.echo(f"  and {more:,} more")
    click.echo(f"Report: {out / 'report.html'}")
