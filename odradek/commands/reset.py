"""`odradek reset`: a running broker as it was after its start."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, speaking


@click.command(context_settings=HELP_NAMES)
@speaking
def reset(remote: Remote) -> None:
    """Reset a broker to the state after its start.

    Topics, groups, transactional ids, rules, moved time and the trace are gone; topics of the command line are created
    again. All connections are reset first, and all nodes run afterwards.
    """
    remote.reset()
    click.echo("the broker is reset")
