"""Apache Kafka with an authorizer, a listener with SASL/PLAIN, and a listener whose clients are anonymous."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tests.broker.security.refusals.principals import ADMIN
from tests.broker.security.refusals.settings import COMMON, JAAS
from tests.broker.security.refusals.sides import SILENCE_S, Side
from tests.support import raw
from tests.support.deadlines import HANG_S, TEST_S, Deadline
from tests.support.java import KAFKA_VERSION, SHORT_LIVED, java, kafka_classpath, with_archive
from tests.support.kafka_oracle import archive_of, format_directory


def _properties(plain_port: int, sasl_port: int, controller_port: int) -> dict[str, str]:
    return COMMON | {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain_port},SASL_PLAINTEXT://127.0.0.1:{sasl_port},"
        f"CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain_port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "CONTROLLER:SASL_PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
    }


@contextmanager
def kafka() -> Iterator[Side]:
    """Context manager: start a new Kafka node, and stop it at the end of the block."""
    plain_port, sasl_port, controller_port = (raw.free_port() for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="kafka-refusals-") as folder:
        home = Path(folder)
        settings = format_directory(home, _properties(plain_port, sasl_port, controller_port))
        options = ["-Xmx1g", *SHORT_LIVED, *with_archive(archive_of(KAFKA_VERSION))]
        command = [java(), *options, "-cp", kafka_classpath(), "kafka.Kafka", str(settings)]
        with (home / "kafka.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home)
        side = Side(sasl_port, plain_port)
        try:
            _wait(side, process, home / "kafka.log")
            yield side
        finally:
            side.close()
            process.terminate()
            try:
                process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(HANG_S)


def _wait(side: Side, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = Deadline(TEST_S)
    while True:
        try:
            answer = side.ask(ADMIN, "init_producer_id", 0, {"transactional_id": None})
            if isinstance(answer, dict) and answer["error_code"] == 0:
                return
        except OSError:
            pass
        if process.poll() is not None or deadline.is_over:
            raise RuntimeError(f"Kafka did not start:\n{log.read_text()[-4000:]}")
        Event().wait(SILENCE_S / 300)
