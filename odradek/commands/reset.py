"""`odradek reset`: return a running broker to the state after its start."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say_done, speaking


@click.command(context_settings=HELP_NAMES)
@as_json
@speaking
def reset(remote: Remote, as_json: bool) -> None:
    """Reset a broker to the state after its start.

    Removes topics, groups, transactional ids, rules, advances of the clock and the trace, and creates the topics of the
    command line again. Resets all connections first, and starts all nodes.
    """
    view = remote.client.post("/v1/reset")
    say_done(as_json, view, "the broker is reset")
