"""Why a published test has another outcome with us than with Apache Kafka 4.3.1, or passes with neither, by its name."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, dict[str, str]]] = {"franz-go": {}, "sarama": {}, "kafka-python": {}}
