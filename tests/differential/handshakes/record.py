"""Records Apache Kafka's responses: python -m tests.differential.handshakes.record"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from tests.differential.handshakes.scripts import LISTENERS, MECHANISMS, PASSWORDS, SCRIPTS, run, settings
from tests.support.kafka_oracle import add_listener, format_directory, started

RECORDED: Final = Path(__file__).with_name("recorded.json")


def main() -> None:
    users = [
        word
        for user, password in PASSWORDS.items()
        for mechanism in MECHANISMS[1:]
        for word in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
    with tempfile.TemporaryDirectory(prefix="kafka-oracle-") as home:
        file = format_directory(Path(home), settings(), arguments=users)
        ports = {name: add_listener(file, name) for name in LISTENERS}
        with started(file):
            transcripts = {name: run(name, ports) for name in SCRIPTS}
    RECORDED.write_text(json.dumps(transcripts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
