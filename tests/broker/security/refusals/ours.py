"""Our broker in this process, with the listeners that Kafka has for the authorization matrix (`matrix`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.security.refusals.settings import COMMON
from tests.broker.security.refusals.sides import Side
from tests.support.in_process import InProcess

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
}


@contextmanager
def ours(folder: Path) -> Iterator[Side]:
    """Context manager: start a new broker, and stop it at the end of the block."""
    with InProcess(folder, settings=COMMON | LISTENERS) as broker:
        ports = {listener.name: listener.port for listener in broker.cluster.first.listeners}
        side = Side(ports["SASL_PLAINTEXT"], ports["PLAINTEXT"])
        try:
            yield side
        finally:
            side.close()
