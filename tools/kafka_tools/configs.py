"""The tool `kafka-configs.sh`."""

from __future__ import annotations

import re
from typing import Final

import click

from tools.client.cluster import Cluster
from tools.client.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    alter_configs,
    describe_configs,
)
from tools.client.errors import ToolError
from tools.kafka_tools.common import HELP, kafka_command, one_of

KINDS: Final = {
    "topics": TOPIC,
    "brokers": BROKER,
    "broker-loggers": BROKER_LOGGER,
    "client-metrics": CLIENT_METRICS,
    "groups": GROUP,
}


@click.command(context_settings=HELP)
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--all", "everything", is_flag=True, help="Describe the defaults too.")
@click.option("--entity-type", type=click.Choice([*KINDS, "users", "clients", "ips"]))
@click.option("--entity-name")
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--group")
@click.option("--add-config", default="", metavar="NAME=VALUE,NAME=[VALUE,VALUE]")
@click.option("--delete-config", default="", metavar="NAME,...")
@kafka_command
def command(
    cluster: Cluster,
    describe: bool,
    alter: bool,
    everything: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    group: str | None,
    add_config: str,
    delete_config: str,
) -> None:
    """Describe or change the settings of a topic, broker or group."""
    for kind, name in (("topics", topic), ("brokers", broker), ("groups", group)):
        if name is not None:
            entity_type, entity_name = kind, name
    if entity_type is None:
        raise click.UsageError("At least one entity type must be specified with --entity-type")
    if entity_type not in KINDS:
        raise ToolError(f"this broker has no settings of {entity_type}")
    names = [""] if entity_default else [entity_name] if entity_name else _all_names(cluster, entity_type)
    if one_of(describe=describe, alter=alter) == "alter":
        for name in names:
            alter_configs(
                cluster,
                KINDS[entity_type],
                name,
                added(add_config),
                list(filter(None, delete_config.split(","))),
            )
            click.echo(f"Completed updating config for {entity_type.removesuffix('s')} {name}.")
        return
    for name in names:
        _describe(cluster, entity_type, name, everything)


def _all_names(cluster: Cluster, entity_type: str) -> list[str]:
    topics = cluster.refresh(None)
    if entity_type == "topics":
        return sorted(each.name or "" for each in topics)
    if entity_type == "brokers":
        return [str(node_id) for node_id in sorted(cluster.nodes)]
    raise click.UsageError("an entity name must be specified with --entity-name")


def _describe(cluster: Cluster, entity_type: str, name: str, everything: bool) -> None:
    kind = entity_type.removesuffix("s")
    click.echo(f"{'All' if everything else 'Dynamic'} configs for {kind} {name} are:")
    for each in describe_configs(cluster, KINDS[entity_type], name):
        if everything or each.is_dynamic:
            setting = f"{each.name}={each.value}"
            sensitive = str(each.is_sensitive).lower()
            click.echo(f"  {setting} sensitive={sensitive} synonyms={{{each.source}:{setting}}}")


def added(text: str) -> dict[str, str]:
    """Parse ``a=1,b=[2,3]``: a value in brackets may contain commas."""
    found = {}
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise click.UsageError(
                f'Invalid entity config: all configs to be added must be in the format "key=val": {part}'
            )
        found[name] = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
    return found
