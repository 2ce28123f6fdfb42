"""The AdminClient sweep: the outcome of each method of Admin, and of the calls behind the pages of kafka-ui.

    python -m tests.clients.jvm.sweep          # records the outcomes with Apache Kafka

`kafka/recorded.json` has the outcomes with Apache Kafka, and a digest of the program.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.support.deadlines import TEST_S
from tests.support.jvm import FOLDER, jvm_program
from tests.support.kafka_oracle import kafka

RECORDED: Final = FOLDER / "kafka" / "recorded.json"
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
SETTLE_MS: Final = 300
"""Milliseconds to wait after a request that changes metadata.

A broker of Apache Kafka applies the change only after the controller's response.
"""

Outcomes = dict[str, dict[str, str]]


def digest() -> str:
    sources = sorted((FOLDER / "kafka").glob("*.java"))
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()


def sweep(bootstrap: str, settle_ms: int) -> Outcomes:
    """Outcome of each call by its name, in the order of the calls."""
    command = [*jvm_program("kafka", "Sweep").command, bootstrap, str(settle_ms)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines: list[dict[str, str]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines.pop() == {"uncalled": "[]"}
    outcomes = {line.pop("call"): line for line in lines}
    assert len(outcomes) == len(lines), "two calls have one name"
    return outcomes


def ask_kafka() -> Outcomes:
    with kafka(SETTINGS) as oracle:
        return sweep(f"{oracle.host}:{oracle.port}", SETTLE_MS)


def recorded() -> Outcomes:
    kept: dict[str, Any] = json.loads(RECORDED.read_text())
    assert kept["digest"] == digest(), (
        "the program has changed: record again with python -m tests.clients.jvm.sweep"
    )
    outcomes: Outcomes = kept["outcomes"]
    return outcomes


def main(file: Path = RECORDED) -> None:
    outcomes = ask_kafka()
    file.write_text(json.dumps({"digest": digest(), "outcomes": outcomes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
