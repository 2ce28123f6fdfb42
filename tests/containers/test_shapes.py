"""The container becomes healthy in every shape of `shapes.py`, and its health check works."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.containers.shapes import SHAPES, check
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S
from tests.support.docker import IMAGE, Docker, transaction
from tests.support.raw import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_healthy_and_serves_clients_outside(docker: Docker, name: str):
    check(docker, SHAPES[name])


def test_without_options_it_serves_localhost_9092(docker: Docker):
    with docker.container(["--publish", "9092:9092"]) as broker:
        broker.until_healthy()
        assert transaction("localhost:9092") == ["paid"]


@pytest.mark.parametrize("way", ["variable", "option"])
def test_the_control_port_is_reached_from_outside(docker: Docker, way: str):
    port = str(free_port())
    options = ["--publish", f"{port}:{port}", "--env", "ODRADEK_CONTROL_TOKEN=secret"]
    arguments = ["--control-port", port] if way == "option" else []
    if way == "variable":
        options += ["--env", f"ODRADEK_CONTROL_PORT={port}"]
    with docker.container(options, arguments) as broker:
        broker.until_healthy()
        request = urllib.request.Request(
            f"http://localhost:{port}/v1/clock", headers={"Authorization": "Bearer secret"}
        )
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            assert answer.status == 200


# ---- The health check


def test_a_stopped_broker_is_unhealthy_until_it_continues(docker: Docker):
    with docker.container() as broker:
        broker.until_healthy()
        docker("kill", "--signal", "STOP", broker.name)
        broker.until_unhealthy()
        docker("kill", "--signal", "CONT", broker.name)
        broker.until_healthy()


def test_it_is_unhealthy_within_25_s_and_healthy_within_1_s(docker: Docker):
    check = json.loads(docker("image", "inspect", "--format", "{{json .Config.Healthcheck}}", IMAGE))
    interval_s, timeout_s, first_s = (
        check[name] / 1_000_000_000 for name in ("Interval", "Timeout", "StartInterval")
    )
    assert first_s <= 1
    # A check waits at most 2 s for the broker. The engine would kill a slower one after its timeout.
    assert check["Retries"] * (interval_s + min(2, timeout_s)) <= 25


def test_a_check_leaves_no_line_in_the_log(docker: Docker):
    with docker.container(["--health-interval", "200ms"]) as broker:
        broker.until_healthy()
        before = broker.log
        seen = broker.state["Health"]["Log"][-1]["Start"]
        eventually(
            lambda: sum(check["Start"] > seen for check in broker.state["Health"]["Log"]) >= 4,
            "four checks more",
        )
        assert broker.log == before


def test_a_check_starts_no_interpreter(docker: Docker):
    check = json.loads(docker("image", "inspect", "--format", "{{json .Config.Healthcheck.Test}}", IMAGE))
    with docker.container() as broker:
        broker.until_healthy()
        program = broker.says("sh", "-c", f"command -v {check[1]}")
        assert broker.says("head", "-c", "4", program) == "\x7fELF"


# ---- Compose


def test_confluent_s_kraft_compose_file_inside_and_outside(docker: Docker, monkeypatch: pytest.MonkeyPatch):
    port = str(free_port())
    monkeypatch.setenv("PORT", port)
    monkeypatch.setenv("IMAGE", IMAGE)
    file = str(Path(__file__).with_name("kraft-compose.yaml"))
    project = ("compose", "--project-name", f"checks-{port}", "--file", file)
    try:
        docker(*project, "up", "--detach", "--wait", "broker")
        assert transaction(f"localhost:{port}", topic="outside") == ["paid"]
        # The application waits until the broker is healthy, and connects to the name of the service.
        assert "2 records to orders, committed" in docker(*project, "run", "--rm", "app")
    finally:
        docker(*project, "down", "--volumes")
