"""`odradek fault`: fault injection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup
from odradek.remote import Rule


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def fault() -> None:
    """Inject faults: lose, delay, hold or refuse requests, cut links."""


@fault.command(context_settings={**HELP_NAMES, "ignore_unknown_options": True})
@click.argument("rule", nargs=-1, required=True, type=click.UNPROCESSED)
@as_json
@speaking
def add(remote: Remote, rule: tuple[str, ...], as_json: bool) -> None:
    """Add a rule (docs/faults.md), and print its id.

    \b
    odradek fault add 'EndTxn transactional_id=payments nth=2 -> lose-answer'
    odradek fault add 'Produce p=0.1 seed=7 -> error NOT_LEADER_OR_FOLLOWER'
    odradek fault add cut 1 2
    """
    text = " ".join(rule)
    if text.endswith("-"):
        raise click.UsageError(
            f"{text}: the shell has interpreted > as a redirection to the next word{_written_to()}. Put the rule in "
            "quotes: odradek fault add 'EndTxn nth=2 -> lose-answer'"
        )
    added = remote.faults.add(text)
    if as_json:
        say_json(added.as_dict())
    else:
        click.echo(added.id)


def _written_to() -> str:
    """A note with the path of the file that the shell has redirected standard output to; empty if there is none."""
    try:
        path = Path(os.readlink("/proc/self/fd/1"))
        return f" (it created {path})" if path.is_file() else ""
    except OSError:
        return ""


@fault.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the rules with their hits, their matches and the number of requests that they hold."""
    rules = remote.faults.list()
    if as_json:
        say_json([each.as_dict() for each in rules])
    elif rules:
        say_table(("ID", "HITS", "MATCHES", "HOLDS", "RULE"), [_row(each) for each in rules])
    else:
        click.echo("no rules (to add one: odradek fault add 'EndTxn nth=2 -> lose-answer')")


def _row(rule: Rule) -> tuple[object, ...]:
    view = rule.as_dict()
    spent = "  (spent)" if view["spent"] else ""
    return (view["id"], view["hits"], view["matches"], len(view["held"]) or None, view["text"] + spent)


@fault.command()
@click.argument("rule_id", type=int, metavar="ID")
@as_json
@speaking
def show(remote: Remote, rule_id: int, as_json: bool) -> None:
    """Show a rule and the requests and steps that it holds."""
    view = remote.faults.get(rule_id).as_dict()
    if as_json:
        say_json(view)
        return
    say(view["text"])
    click.echo(f"hits {view['hits']} of {view['matches']} matches{', spent' if view['spent'] else ''}")
    if view["held"]:
        rows = [(*_place(each), each["since_ms"]) for each in view["held"]]
        say_table(("HOLDS", *_PLACE, "SINCE_MS"), rows)
    if view["released"]:
        rows = [(*_place(each), each["outcome"], " ".join(each["errors"])) for each in view["released"]]
        say_table(("RELEASED", *_PLACE, "OUTCOME", "ERRORS"), rows)


_PLACE: Final = ("NODE", "CONNECTION", "CLIENT", "TRANSACTIONAL ID", "GROUP", "MEMBER", "PARTITIONS")


def _place(view: dict[str, Any]) -> tuple[object, ...]:
    named = " ".join(view["partitions"]) or view["topic"]
    ids = (view["client_id"], view["transactional_id"], view["group"], view["member"])
    return (view["at"], view["node"], view["connection"], *ids, named)


@fault.command()
@click.argument("rule_id", type=int, metavar="ID")
@click.option(
    "--count", type=click.IntRange(1), help="Release only this many, the oldest first.  [default: all]"
)
@click.option("--topic", help="Only requests and steps that name this topic.")
@click.option("--partition", type=click.IntRange(0), help="Only requests and steps that name this partition.")
@click.option("--transactional-id", metavar="ID", help="Only requests and steps of this transactional id.")
@click.option("--group", help="Only requests and steps of this group.")
@click.option("--member", metavar="ID", help="Only requests and steps of this member of a group.")
@click.option(
    "--offset",
    type=click.IntRange(0),
    help="Only requests and steps that acknowledge this offset, or write its state.",
)
@click.option("--client-id", metavar="ID", help="Only requests and steps of this client id.")
@click.option("--node", type=click.IntRange(0), help="Only requests and steps on this node.")
@click.option("--to", "to_id", type=int, metavar="ID", help="Pass the released requests to this rule.")
@as_json
@speaking
def release(
    remote: Remote, rule_id: int, count: int | None, to_id: int | None, as_json: bool, **only: Any
) -> None:
    """Release the requests and steps that a rule holds or has detached; the rule stays."""
    to = remote.faults.get(to_id) if to_id is not None else None
    released = remote.faults.get(rule_id).release(count, to=to, **only)
    if as_json:
        say_json({"released": released})
    else:
        click.echo(f"{released} released")


@fault.command()
@click.argument("rule_id", type=int, metavar="[ID]", required=False)
@as_json
@speaking
def clear(remote: Remote, rule_id: int | None, as_json: bool) -> None:
    """Remove a rule, or all rules; the requests and steps that they hold continue."""
    if rule_id is None:
        cleared = remote.faults.clear()
    else:
        remote.faults.get(rule_id).remove()
        cleared = 1
    if as_json:
        say_json({"cleared": cleared})
    else:
        click.echo(f"{cleared} removed")
