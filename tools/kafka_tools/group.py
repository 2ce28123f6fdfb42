"""`odradek kafka-tool NAME ...`: Kafka's own tools by their names and options, for scripts that call them in a container.

Each tool prints the parts of Kafka's output that scripts parse. Options that only secure connections need are rejected.
"""

from __future__ import annotations

import click

from tools.kafka_tools import (
    broker_api_versions,
    cluster,
    configs,
    console,
    consumer_groups,
    cub,
    get_offsets,
    topics,
)


@click.group(context_settings={"help_option_names": ["--help", "-h"]})
def kafka_tool() -> None:
    """Run one of Kafka's own tools by its name and options."""


kafka_tool.add_command(topics.command, "kafka-topics")
kafka_tool.add_command(broker_api_versions.command, "kafka-broker-api-versions")
kafka_tool.add_command(console.producer, "kafka-console-producer")
kafka_tool.add_command(console.consumer, "kafka-console-consumer")
kafka_tool.add_command(consumer_groups.command, "kafka-consumer-groups")
kafka_tool.add_command(configs.command, "kafka-configs")
kafka_tool.add_command(get_offsets.command, "kafka-get-offsets")
kafka_tool.add_command(cluster.command, "kafka-cluster")
kafka_tool.add_command(cub.command, "cub")
