"""`odradek spark`: what Spark needs, and the pipeline that shows what it can have."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import click

from odradek.commands.common import HELP_NAMES, end_at_sigterm, needing
from odradek.commands.sink import sink
from odradek.errors import OdradekError


@click.group(context_settings=HELP_NAMES)
def spark() -> None:
    """Spark beside the broker: fetch its jars, look at its sinks, run the pipeline."""


spark.add_command(sink)


@spark.command()
def jars() -> None:
    """Fetch the jars of Spark's Kafka connector, once, and say where they are (for --jars)."""
    from odradek.spark.environment import connector_jars

    try:
        click.echo(",".join(map(str, connector_jars())))
    except OdradekError as error:
        raise click.ClickException(str(error)) from None


@spark.command(short_help="Flights in, hourly delays out, exactly once, while everything is killed.")
@click.option("--flights", type=click.IntRange(min=1), metavar="N", help="Only the first N of 336,776.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="A Kafka that runs; else a broker of our own, which is killed too.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Its segment files, for the audit.  [default: those of our own broker]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the audit's page and tables go.  [default: nowhere]",
)
@click.option("--seed", type=int, help="What the kills are drawn from.  [default: chance]")
@click.option("--driver-kills", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--worker-kills", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--producer-kills", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--broker-kills", type=click.IntRange(min=0), default=2, show_default=True, help="Of our own.")
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
    help="Spark's own Kafka sink instead: what it doubles, if it is hit writing, is shown.",
)
@click.option("--keep", is_flag=True, help="Leave all files where they are.")
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
    """Delays per airport and hour of all flights that left New York in 2013, exactly once.

    A transactional producer, a Structured Streaming job, kill -9 of both, of Spark's workers and of the broker. The
    result is compared with what plain Python computes, and the broker's files are audited. Exit code 1: something is
    wrong; 2: it came to no end. Needs Java and odradek[audit,demo].
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
