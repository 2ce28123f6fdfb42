"""The versions of the tested clients, read from the files that pin them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.java import KAFKA_VERSION

ROOT: Final = Path(__file__).resolve().parents[2]
CLIENTS: Final = "tests/clients"

# File, and a pattern whose group is the version.
PINNED: Final = {
    "@confluentinc/kafka-javascript": (
        f"{CLIENTS}/node-librdkafka/package.json",
        r'kafka-javascript": "([^"]+)"',
    ),
    "@platformatic/kafka": (f"{CLIENTS}/node/package.json", r'"@platformatic/kafka": "([^"]+)"'),
    "Apicurio Registry": (f"{CLIENTS}/jvm/artifacts.json", r"apicurio-registry-app:([\w.]+)"),
    "aiokafka": ("requirements/lock.txt", r"^aiokafka==(\S+)"),
    "Debezium": (f"{CLIENTS}/jvm/artifacts.json", r"debezium-embedded:([\w.]+)"),
    "faust-streaming": (f"{CLIENTS}/test_python_streams.py", r"faust-streaming==([\w.]+)"),
    "Flink KafkaSink": (f"{CLIENTS}/jvm/artifacts.json", r"flink-connector-kafka:([\w.-]+)"),
    "franz-go": (f"{CLIENTS}/go/go.mod", r"twmb/franz-go v(\S+)"),
    "Kafka Connect": (f"{CLIENTS}/jvm/artifacts.json", r"connect-runtime:([\w.]+)"),
    "Kafka Streams": (f"{CLIENTS}/jvm/artifacts.json", r"kafka-streams:([\w.]+)"),
    "kafka-go (segmentio)": (f"{CLIENTS}/go/go.mod", r"segmentio/kafka-go v(\S+)"),
    "kafka-python": ("requirements/lock.txt", r"^kafka-python==(\S+)"),
    "kafkajs": (f"{CLIENTS}/node/package.json", r'"kafkajs": "([^"]+)"'),
    "librdkafka (confluent-kafka)": ("requirements/lock.txt", r"^confluent-kafka==(\S+)"),
    "quixstreams": (f"{CLIENTS}/test_python_streams.py", r"quixstreams==([\w.]+)"),
    "rdkafka (Rust)": (f"{CLIENTS}/rust/Cargo.toml", r'^rdkafka = \{ version = "([^"]+)"'),
    "rskafka (Rust)": (f"{CLIENTS}/rust/Cargo.toml", r'^rskafka = \{ version = "([^"]+)"'),
    "sarama": (f"{CLIENTS}/go/go.mod", r"IBM/sarama v(\S+)"),
    "Spring Kafka": (f"{CLIENTS}/jvm/artifacts.json", r"spring-kafka:([\w.-]+)"),
}
OF_KAFKA: Final = (
    "Java",
    "Java AdminClient",
    "kafka-ui (the calls of its pages)",
)
"""Clients of Kafka itself, or based on its AdminClient."""
OF_THE_SYSTEM: Final = ("kcat",)
"""Clients from the system's packages, in any version."""


@cache
def of_client(name: str) -> str:
    if name in OF_KAFKA:
        return KAFKA_VERSION
    if name in OF_THE_SYSTEM:
        return ""
    file, pattern = PINNED[name]
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None, f"no version of {name} in {file}"
    return found[1]
