"""`odradek spark`: the connector's jars, exactly-once sinks, and the demonstration pipeline."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from odradek.commands.common import HELP_NAMES, end_at_sigterm, needing
from odradek.commands.groups import CommandGroup
from odradek.commands.sink import sink
from odradek.commands.waiting import telling_waits
from odradek.errors import OdradekError
from odradek.pending import waiting_for

Command = Callable[..., Any]


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def spark() -> None:
    """Manage exactly-once sinks, run the pipeline, download Spark's jars."""


spark.add_command(sink)


@spark.command()
def jars() -> None:
    """Download the jars of Spark's Kafka connector once, and print their paths (for --jars)."""
    from odradek.spark.environment import connector_jars

    try:
        with telling_waits(), waiting_for("downloading the jars"):
            found = connector_jars()
        click.echo(",".join(map(str, found)))
    except OdradekError as error:
        raise click.ClickException(str(error)) from None


def _kills(option: str, text: str) -> Callable[[Command], Command]:
    """Decorator: add an option for a number of kills."""
    return click.option(option, type=click.IntRange(min=0), default=2, show_default=True, help=text)


@spark.command(
    short_help="Run a streaming job exactly once while driver, workers, producer and broker are killed."
)
@click.option(
    "--flights", type=click.IntRange(min=1), metavar="N", help="Process only the first N of 336,776 flights."
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="A running Kafka.  [default: a broker that the demo starts, and kills too]",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The segment files of that Kafka, for the audit.  [default: those of the demo's broker]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the audit's report and tables here.  [default: they are deleted]",
)
@click.option("--seed", type=int, help="Seed of the times of the kills.  [default: random]")
@_kills("--driver-kills", "Kills of Spark's driver.")
@_kills("--worker-kills", "Kills of Python workers.")
@_kills("--producer-kills", "Kills of the producer.")
@_kills("--broker-kills", "Kills of the demo's broker.")
@click.option(
    "--per-batch",
    type=click.IntRange(min=8),
    default=30_000,
    show_default=True,
    help="Offsets per micro-batch.",
)
@click.option(
    "--stock-sink",
    is_flag=True,
    help="Write with Spark's own Kafka sink instead, and report the rows that it duplicates when it is killed.",
)
@click.option("--keep", is_flag=True, help="Do not delete the files at the end.")
def demo(
    flights: int | None,
    bootstrap: str | None,
    data_dir: Path | None,
    out: Path | None,
    seed: int | None,
    per_batch: int,
    stock_sink: bool,
    keep: bool,
    **kills: int,
) -> None:
    """Compute the delays per airport and hour of all flights that left New York in 2013, exactly once.

    The demo runs a transactional producer and a Structured Streaming job, and kills both, Spark's workers and the broker
    with SIGKILL. It compares the result with one computed in plain Python, and audits the broker's files. The exit code is
    1 if the result or the files are wrong, and 2 if the demo did not finish. Needs Java and odradek[audit,demo].
    """
    with needing("audit,demo", "demo"):
        from odradek.spark.pipeline.main import new_directory, run
        from odradek.spark.pipeline.plan import Kills
        from odradek.spark.pipeline.run import Settings
    end_at_sigterm()
    said = {name.removesuffix("_kills"): count for name, count in kills.items()}
    if bootstrap is not None:
        said["broker"] = 0
    settings = Settings(
        directory=new_directory(),
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else seed,
        flights=flights,
        per_batch=per_batch,
        bootstrap=bootstrap,
        data_dir=data_dir,
        out=out,
        kills=Kills(**said),
        sink_format="kafka" if stock_sink else "odradek.exactly_once",
    )
    sys.exit(run(settings, keep))
