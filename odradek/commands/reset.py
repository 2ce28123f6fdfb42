"""`odradek reset`: return a running broker to the state after its start."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say_done, speaking


@click.command(context_settings=HELP_NAMES)
@click.option(
    "--new-cluster-id", is_flag=True, help="Give the cluster a new id: another cluster at the same addresses."
)
@as_json
@speaking
def reset(remote: Remote, new_cluster_id: bool, as_json: bool) -> None:
    """Reset a broker to the state after its start.

    Removes topics, groups, transactional ids, rules, advances of the clock and the trace, and creates the topics of the
    command line again. Resets all connections first, and starts all nodes.
    """
    view = remote.client.post("/v1/reset", {"new_cluster_id": True} if new_cluster_id else None)
    text = (
        f"the broker is reset; its cluster id is {view['cluster_id']}"
        if new_cluster_id
        else "the broker is reset"
    )
    say_done(as_json, view, text)
