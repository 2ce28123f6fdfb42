"""Broken use of `odradek certify`: what is printed, and how soon. The pure ones with each change, the others in `more`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.commands.certify import certify

JOB = ("--job", "python job.py {bootstrap}")
TOPICS = ("--topic", "in:2", "--topic", "out:2")
IO = (*TOPICS, "--seed-records", "in=in.ndjson", "--output", "out")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"key": "k", "value": "v"}\n' * 20)
    (tmp_path / "bad.ndjson").write_text('{"key": "k", "value": "v"}\n{"key": "k" "value": "v"}\n')
    return tmp_path


def refused(*words: str) -> str:
    """What is printed where nothing is started."""
    result: Result = CliRunner().invoke(certify, list(words))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*JOB, *TOPICS, "--output", "outt"), "--output outt: no --topic has this name (did you mean out?)"),
        (
            (
                *JOB,
                "--topic",
                "inn:2",
                "--topic",
                "out:2",
                "--output",
                "out",
                "--seed-records",
                "in=in.ndjson",
            ),
            "--seed-records in: no --topic has this name (did you mean inn?)",
        ),
        ((*JOB, "--topic", "in=2", "--output", "out"), "--topic 'in=2': expected NAME:PARTITIONS"),
        (
            (*JOB, *TOPICS, "--output", "out", "--seed-records", "in=absent.ndjson"),
            "--seed-records: there is no file",
        ),
        ((*JOB, *TOPICS, "--output", "out", "--seed-records", "in=bad.ndjson"), "bad.ndjson:2: no JSON"),
        ((*JOB, *IO, "--budget", "0s"), "--budget '0s': expected a duration"),
        ((*JOB, *IO, "--until", "soon"), "--until 'soon': expected"),
        ((*JOB, *IO, "again", "12345678"), "there is no certificate in certificate/"),
        (("--output", "out"), "--job is missing"),
    ],
)
def test_a_mistake_in_the_options_is_named_before_anything_starts(
    words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('job = "x\n', "certify.toml: Illegal character"),
        ('job = "x"\noutptu = ["out"]\n', "there is no option outptu (did you mean output?)"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, message: str, directory: Path) -> None:
    (directory / "certify.toml").write_text(text)
    assert message in refused()


@pytest.fixture
def port() -> Iterator[int]:
    """One that is in use."""
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        yield used.getsockname()[1]


def test_a_port_in_use_is_named(port: int) -> None:
    assert f"--live-port {port}: " in refused(*JOB, *IO, "--live-port", str(port))
