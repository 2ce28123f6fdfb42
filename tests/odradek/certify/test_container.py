"""Jobs in containers, without a Docker engine. The tests with an engine are in tests/containers/test_certify.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.container import Containers, check, parse
from odradek.certify.settings import workload

ENGINE = """#!/bin/sh
echo "$@" >>"$ODRADEK_TEST_CALLS"
case $1 in
create) echo id;;
start) echo hello; exit 7;;
container) exit 1;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the calls of a fake command `docker`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "docker").write_text(ENGINE)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("ODRADEK_TEST_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_an_instance_is_a_container_with_the_network_of_the_host(calls: Path, tmp_path: Path) -> None:
    command = Command.parse("A={run} job {bootstrap}", container=parse("-v /jars:/jars image:1"))
    containers = Containers(command, "mark")
    values = {"bootstrap": "h:1", "data": str(tmp_path), "run": "r"}
    instance = containers.start(1, values, {"ODRADEK_RUN": "r"}, tmp_path / "log")
    instance.attached.wait()
    assert (instance.code, (tmp_path / "log").read_text()) == (7, "hello\n")
    created, started = calls.read_text().splitlines()
    assert created == (
        "create --rm --name odradek-certify-mark-0 --label odradek.certify.jobs.job=mark --network host "
        f"--mount type=bind,source={tmp_path},target={tmp_path} --env=ODRADEK_RUN=r --env=A=r "
        "-v /jars:/jars image:1 job h:1"
    )
    assert started == "start --attach odradek-certify-mark-0"


def test_a_network_that_is_asked_for_is_taken(calls: Path, tmp_path: Path) -> None:
    containers = Containers(Command.parse((), container=parse("--network=mine image")), "mark")
    containers.start(1, {"data": str(tmp_path)}, {}, tmp_path / "log").attached.wait()
    assert "host" not in calls.read_text()


@pytest.mark.usefixtures("calls")
def test_without_a_command_that_of_the_image_is_run(tmp_path: Path) -> None:
    found = workload({"job-container": "image", "output": ["out"]}, tmp_path)
    assert (found.command.words, found.command.container) == ((), ("image",))


@pytest.mark.parametrize("text", ["", "--rm"])
def test_a_container_without_an_image_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an image"):
        parse(text)


def test_a_missing_docker_command_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/absent")
    with pytest.raises(ValueError, match="needs the command docker"):
        check(["image"])
