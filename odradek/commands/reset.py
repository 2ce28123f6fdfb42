"""`odradek reset`: a running broker as it was after its start."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say_done, speaking


@click.command(context_settings=HELP_NAMES)
@as_json
@speaking
def reset(remote: Remote, as_json: bool) -> None:
    """Reset a broker to the state after its start.

    Topics, groups, transactional ids, rules, moved time and the trace are gone; topics of the command line are created
    again. All connections are reset first, and all nodes run afterwards.
    """
    view = remote.client.post("/v1/reset")
    say_done(as_json, view, "the broker is reset")
