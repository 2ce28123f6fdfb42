"""`odradek topic config`, `odradek group config`: the settings of a topic or group."""

from __future__ import annotations

import click

from tools.client.cluster import Cluster
from tools.client.configs import alter_configs, describe_configs
from tools.commands.common import as_json, on_a_cluster, say_json, say_table, settings


def config_command(noun: str, kind: int) -> click.Command:
    """Return the command ``config`` of a kind of resource (a constant of `tools.client.configs`)."""

    @click.command("config", help=f"Show the settings of a {noun}, or set them (IncrementalAlterConfigs).")
    @click.argument("name", metavar="NAME")
    @click.option(
        "-s", "--set", "changes", multiple=True, metavar="NAME=VALUE", help=f"Set a setting of the {noun}."
    )
    @click.option(
        "-d",
        "--delete",
        "deletions",
        multiple=True,
        metavar="NAME",
        help=f"Reset a setting of the {noun} to its default.",
    )
    @click.option("-a", "--all", "everything", is_flag=True, help="Show defaults too.")
    @as_json
    @on_a_cluster
    def config(
        cluster: Cluster,
        name: str,
        changes: tuple[str, ...],
        deletions: tuple[str, ...],
        everything: bool,
        as_json: bool,
    ) -> None:
        if changes or deletions:
            alter_configs(cluster, kind, name, settings(changes), deletions)
        found = [each for each in describe_configs(cluster, kind, name) if everything or each.is_dynamic]
        if as_json:
            say_json({each.name: {"value": each.value, "source": each.source} for each in found})
        else:
            say_table(
                ("SETTING", "VALUE", "SOURCE"), [(each.name, each.value, each.source) for each in found]
            )

    return config
