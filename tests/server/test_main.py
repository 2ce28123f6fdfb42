"""``python -m server`` as a process: its output, its exit, and the arguments that it rejects."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek._server import command
from odradek.health import HealthError, ask_api_versions
from tests.support.broker import Broker, BrokerFailed, StartBroker
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]


def run(arguments: Sequence[str], tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program, which is expected to fail at its start."""
    start = [sys.executable, "-m", "server", "--port", "0", "--data-dir", str(tmp_path / "data"), *arguments]
    return subprocess.run(start, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S)


def test_it_says_once_that_it_is_ready_in_the_words_that_tools_wait_for(broker: Broker) -> None:
    for pattern in (
        r".*Transitioning from RECOVERY to RUNNING.*",
        r".*\[KafkaServer id=\d+\] started.*",
        r".*Kafka Server started.*",
        r".*Successfully started Redpanda!.*",
        r".*Started Kafka API server.*",
    ):
        eventually(lambda: any(re.fullmatch(pattern, line) for line in broker.log), pattern)  # noqa: B023
        assert len([line for line in broker.log if re.fullmatch(pattern, line)]) == 1, pattern


def test_when_it_says_started_it_answers(broker: Broker) -> None:
    assert ask_api_versions(broker.bootstrap) > 0


def test_ready_lines_are_printed_whatever_the_log_level(start_broker: StartBroker) -> None:
    broker = start_broker("--log-level", "error")
    eventually(lambda: any("Transitioning from RECOVERY to RUNNING" in line for line in broker.log))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(broker: Broker, number: signal.Signals) -> None:
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(struct.pack(">i", 100) + b"half a frame")
        broker.terminate(number)
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert broker.events[-1]["event"] == "stopped"


def test_sigquit_writes_stacks_and_the_broker_goes_on(broker: Broker) -> None:
    os.kill(broker.pid, signal.SIGQUIT)
    eventually(lambda: any(line.startswith("task ") and " _serve" in line for line in broker.log))
    assert any(line.startswith("thread MainThread: ") for line in broker.log)
    assert ask_api_versions(broker.bootstrap) > 0


def test_a_restart_keeps_cluster_and_port(start_broker: StartBroker) -> None:
    broker = start_broker(topics=["orders:4"])
    port, (cluster_id, *_) = (
        broker.port,
        [event["cluster_id"] for event in broker.events if "cluster_id" in event],
    )
    broker.kill()
    broker.restart()
    assert broker.port == port
    assert [event["cluster_id"] for event in broker.events if "cluster_id" in event] == [cluster_id]
    assert ask_api_versions(broker.bootstrap) > 0


def test_port_0_is_chosen_and_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        start = [sys.executable, "-m", "server", "--port", "0", "--log-format", "json"]
        process = subprocess.Popen(start, cwd=ROOT, stdout=log, env={"TMPDIR": str(tmp_path)})
        try:
            found = None
            while found is None and process.poll() is None:
                found = re.search(
                    r'"listeners": \["PLAINTEXT://127\.0\.0\.1:(\d+)"\]', (tmp_path / "log").read_text()
                )
            assert found is not None
            assert ask_api_versions(f"127.0.0.1:{found[1]}") > 0
            # Without --data-dir the data directory is a temporary one, which is removed at the end of the process.
            assert len(list(tmp_path.glob("odradek-*"))) == 1
        finally:
            process.terminate()
        assert process.wait(HANG_S) == 0
    assert list(tmp_path.glob("odradek-*")) == []


def test_its_process_imports_none_of_the_users_packages(tmp_path: Path) -> None:
    for name in ("server", "lab", "compiled", "broker", "storage", "protocol", "asyncio"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command("serve", "--help"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr


def test_a_taken_port_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run(["--port", str(port)], tmp_path)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert f"listener PLAINTEXT: port {port} of 127.0.0.1 is in use by another process" in line
    assert "Traceback" not in done.stderr


def test_a_taken_control_port_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run(["--control-port", str(port), "--log-format", "json"], tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "cannot start" in line]
    assert f"control port 127.0.0.1:{port}: in use by another process" in line
    assert "Traceback" not in done.stdout + done.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_call_that_waits_at_the_control_port_does_not_delay_the_stop(start_broker: StartBroker) -> None:
    broker = start_broker(control=True)
    host, port = broker.control_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as follower:
        follower.sendall(b"GET /v1/trace/follow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert follower.recv(100).startswith(b"HTTP/1.1 200")
        broker.terminate()


def test_without_a_control_port_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from broker.cluster import Cluster; from server.options import parse\n"
        "import server.__main__ as program; from server import process\n"
        "process.stop_signals = lambda: stopped()\n"
        "def stopped():\n    event = asyncio.Event(); event.set(); return event\n"
        f"program.main(['--port', '0', '--data-dir', {str(tmp_path)!r}])\n"
        "assert 'broker.cluster' in sys.modules\n"
        "loaded = {'aiohttp', 'msgspec', 'lab.control', 'lab.faults.engine'} & {*sys.modules}\n"
        "print(*loaded, file=sys.stderr)"  # not to stdout, where a thread writes the log
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stderr == "\n"
    assert (tmp_path / "meta.properties").exists()  # the broker did start


def test_a_directory_of_another_broker_is_one_line_and_an_exit_code(broker: Broker, tmp_path: Path) -> None:
    done = run(["--data-dir", str(broker.data_dir)], tmp_path)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert f"{broker.data_dir} is in use by another broker" in line
    assert ask_api_versions(broker.bootstrap) > 0


def test_a_failed_start_lets_go_of_its_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        run(["--port", str(other.getsockname()[1])], tmp_path)
    with (tmp_path / "data" / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prot", "9092"], "--port"),
        (["--set", "num.partitions=none"], "num.partitions"),
        (["--topic", "orders:none"], "--topic orders:none"),
    ],
)
def test_a_bad_option_is_named(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = run(arguments, tmp_path)
    assert done.returncode not in (0, None)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_crash_point_is_named(tmp_path: Path) -> None:
    done = run([], tmp_path, ODRADEK_CRASH_POINTS="txn.prepair:2")
    assert done.returncode == 1
    assert "no crash point is called 'txn.prepair'" in done.stdout


def test_rules_of_the_start_need_no_control_port(start_broker: StartBroker) -> None:
    broker = start_broker(environment={"ODRADEK_FAULTS": "ApiVersions times=1 -> drop"})
    with pytest.raises(HealthError):
        ask_api_versions(broker.bootstrap)
    assert ask_api_versions(broker.bootstrap) > 0


def test_a_crash_point_kills_and_a_restart_heals(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.terminate()
    with pytest.raises(BrokerFailed, match="exit code -9"):
        broker.restart(environment={"ODRADEK_CRASH_POINTS": "file.write:1"})
    broker.restart(environment={})
    assert ask_api_versions(broker.bootstrap) > 0


def test_garbage_leaves_one_line_and_harms_no_other_client(broker: Broker) -> None:
    before = len(broker.log)
    with socket.create_connection((broker.host, broker.port)) as client:
        client.settimeout(HANG_S)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b""
    assert ask_api_versions(broker.bootstrap) > 0
    eventually(lambda: len(broker.log) > before)
    assert len(broker.log) == before + 1


OAUTHBEARER = r"""
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=OAUTHBEARER
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class=\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.expected.audience=kafka
sasl.oauthbearer.expected.issuer=https://login.example
sasl.oauthbearer.jwks.endpoint.url=https://login.example/keys
"""


@pytest.mark.parametrize("asked", [["--tls"], ["--config", "server.properties"]], ids=["TLS", "tokens"])
def test_without_the_packages_of_the_extra_it_says_which_extra_it_is(
    asked: list[str], tmp_path: Path
) -> None:
    """The error for a missing package names the extra ``security``. A plain installation lacks these packages, as they would
    be a fifth of its size."""
    (tmp_path / "server.properties").write_text(OAUTHBEARER)
    program = (
        "import sys; sys.modules.update(cryptography=None, jwt=None)\n"
        "from server.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--data-dir", str(tmp_path / "data"), *asked],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 1, done.stdout
    assert "pip install 'odradek[security]'" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_windows_is_told_where_a_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, which has no module `resource`, the error suggests WSL 2."""
    from server.__main__ import main

    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(SystemExit, match="WSL 2"):
        main([])
