"""The `odradek` command on the command line."""

import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from odradek.health import HealthError, ask_api_versions, local_bootstrap
from tests.support.deadlines import HANG_S


def odradek(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Like the installed console script, wherever pip has put it.
    start = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments], capture_output=True, text=True, timeout=HANG_S, check=False
    )


@pytest.fixture
def answer_once() -> Iterator[Callable[[bytes], str]]:
    """A function that starts a listener, which sends these bytes to the next connection, and returns its address."""
    listeners = []

    def answer(data: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            listener.close()  # no second connection: TLS is not available either
            with connection:
                connection.recv(1024)
                connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield answer
    for listener in listeners:
        listener.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def test_help_and_version_need_neither_broker_nor_clients():
    loaded = "import sys, odradek.cli; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    modules = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "asyncio",
        "broker",
        "confluent_kafka",
        "kio",
        "protocol",
        "rich",
        "storage",
        "structlog",
        "uvloop",
    }
    assert heavy.isdisjoint(modules)
    assert {"serve", "export", "import", "health", "demo"} <= set(odradek("--help").stdout.split())
    assert odradek("--version").stdout.startswith("odradek 0.")


def test_the_version_names_the_core_that_the_server_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ODRADEK_PURE", raising=False)
    built = [*(Path(__file__).parents[2] / "protocol").glob("compiled.*.so")]
    modules = " and modules" if [*(Path(__file__).parents[2] / "compiled" / "modules").glob("*.so")] else ""
    expected = f" (compiled core{modules})\n" if built else " (pure Python)\n"
    assert odradek("--version").stdout.endswith(expected)
    monkeypatch.setenv("ODRADEK_PURE", "1")
    assert odradek("--version").stdout.endswith(" (pure Python)\n")


def test_a_mistyped_command_names_the_nearest():
    result = odradek("serv")
    assert result.returncode == 2
    assert "serve" in result.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["help"], ["--help"]),
        (["help", "fault"], ["fault", "--help"]),
        (["fault", "help", "add"], ["fault", "add", "--help"]),
    ],
)
def test_help_can_be_typed_as_a_command(typed: list[str], meant: list[str]):
    result = odradek(*typed)
    assert (result.returncode, result.stdout) == (0, odradek(*meant).stdout)
    assert "Usage: " in result.stdout


def test_serve_passes_its_options_through_to_the_broker():
    result = odradek("serve", "--help")
    assert result.returncode == 0
    assert "--data-dir" in result.stdout
    result = odradek("serve", "--prot", "1")
    assert result.returncode == 2
    assert "--port" in result.stderr
    result = odradek("serve", "--set", "num.partitions=many")
    assert result.returncode != 0
    assert "Invalid value many for configuration num.partitions" in result.stderr


def test_a_healthy_broker_announces_apis(answer_once: Callable[[bytes], str]):
    assert ask_api_versions(answer_once(framed(struct.pack(">ihi", 1, 0, 2) + bytes(12)))) == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server responds there"),
        (b"\x15\x03\x03\0\2\2\x46", "requires TLS"),
        (b"\x7f\xff\xff\xff", "is not Kafka's"),
        (framed(struct.pack(">ihi", 1, 35, 0)), "error code 35"),
        (framed(struct.pack(">ihi", 2, 0, 1)), "error code 0"),
        (framed(bytes(12))[:9], "closed the connection"),
    ],
)
def test_anything_else_is_not_healthy(answer_once: Callable[[bytes], str], data: bytes, reason: str):
    with pytest.raises(HealthError, match=reason):
        ask_api_versions(answer_once(data))


def test_silence_is_not_healthy():
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        pytest.raises(HealthError, match="timed out"),
    ):
        ask_api_versions(f"127.0.0.1:{listener.getsockname()[1]}", 0.05)


@pytest.mark.parametrize("bootstrap", ["localhost", "localhost:kafka", "localhost:0", "localhost:70000"])
def test_an_address_needs_a_port(bootstrap: str):
    with pytest.raises(HealthError, match="expected HOST:PORT"):
        ask_api_versions(bootstrap)


def test_the_exit_code_tells_the_health_of_a_running_broker(broker):
    healthy = odradek("health", "--bootstrap", broker.bootstrap)
    assert healthy.returncode == 0
    assert "is healthy" in healthy.stdout
    ill = odradek("health", "--bootstrap", f"127.0.0.1:{free_port()}")
    assert ill.returncode == 1
    assert "refused" in ill.stderr


@pytest.mark.parametrize(
    ("environ", "bootstrap"),
    [
        ({}, "localhost:9092"),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.test:29092"}, "localhost:29092"),
        (
            {
                "KAFKA_LISTENERS": "CONTROLLER://:9093, PLAINTEXT://[::]:9094",
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://h:5",
            },
            "localhost:9094",
        ),
        ({"KAFKA_LISTENERS": "C://:1,P://:2", "KAFKA_CONTROLLER_LISTENER_NAMES": "C"}, "localhost:2"),
        ({"KAFKA_LISTENERS": "nonsense"}, "localhost:9092"),
    ],
)
def test_the_health_check_of_a_container_finds_its_broker(environ: dict[str, str], bootstrap: str):
    assert local_bootstrap(environ) == bootstrap


ENDED = """
import time
from odradek.commands.common import end_at_sigterm
end_at_sigterm()
try:
    print("at work", flush=True)
    time.sleep(60)
finally:
    print("tidied up", flush=True)
"""


def test_a_terminated_program_kills_the_processes_that_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "at work\n"
        program.terminate()
        assert program.stdout.readline() == "tidied up\n"
        assert program.wait(HANG_S) == 128 + signal.SIGTERM
