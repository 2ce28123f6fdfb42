"""`odradek chaos`: random failures from a seed, for a soak test of the user's own job."""

from __future__ import annotations

import time

import click

from odradek.chaos import KINDS, Chaos, verify
from odradek.commands.common import HELP_NAMES, Remote, as_json, say, say_done, say_json, speaking
from odradek.durations import seconds


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in click's stubs only
    """Click type for durations such as ``3s``, ``250ms``, ``10m``; the value is in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(context_settings=HELP_NAMES)
@click.argument("kinds", metavar="[KIND,...]", default=",".join(KINDS))
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="The same seed gives the same sequence of failures.",
)
@click.option(
    "--every", type=Duration(), default="3s", show_default=True, help="The pause between two steps."
)
@click.option("--for", "lasts_s", type=Duration(), help="End after this time.  [default: at Ctrl-C]")
@click.option("--steps", type=click.IntRange(min=1), help="End after this number of steps.")
@as_json
@speaking
def chaos(
    remote: Remote,
    kinds: str,
    seed: int,
    every: float,
    lasts_s: float | None,
    steps: int | None,
    as_json: bool,
) -> None:
    """Kill nodes, cut links, lose responses and more at random, while your own job runs against the broker.

    A KIND is kill, stop, cut, lose, drop, refuse or delay; without any, all of them. At the end all failures are reverted.
    The exit code is 1 if then a node does not run, a replica stays out of the ISR, a transaction stays open, or committed
    records are lost.

    \b
    odradek chaos --seed 7 --every 3s kill,cut,lose
    odradek chaos --for 10m
    """
    try:
        run = Chaos(remote, seed, [each for each in kinds.split(",") if each], every)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    began = time.monotonic()
    taken = 0
    try:
        while (steps is None or taken < steps) and (lasts_s is None or time.monotonic() - began < lasts_s):
            for line in run.step(time.monotonic()):
                _say(began, line, as_json)
            taken += 1
            time.sleep(every)
    except KeyboardInterrupt:
        click.echo(err=True)
    finally:
        for line in run.end():
            _say(began, line, as_json)
    findings = verify(remote)
    wrong = [f"WRONG: {finding}" for finding in findings]
    verdict = f"{len(findings)} findings" if findings else "no findings"
    text = "\n".join([*wrong, f"seed {seed}: {taken} steps, {verdict}"])
    say_done(as_json, {"seed": seed, "steps": taken, "findings": list(findings)}, text)
    if findings:
        raise SystemExit(1)


def _say(began: float, line: str, as_json: bool) -> None:
    at_s = time.monotonic() - began
    if as_json:
        say_json({"at_s": round(at_s, 1), "did": line})
    else:
        say(f"{at_s:7.1f} s  {line}")
