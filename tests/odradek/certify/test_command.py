"""``odradek certify`` on the command line: its output, files and exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.commands.certify import certify
from tests.odradek.certify.zoo import ZOO
from tests.support.deadlines import LONG_TEST_S


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"key": "k", "value": "v"}\n' * 20)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--job is missing"),
        (["--job", "true"], "--output is missing"),
        (["--job", "true", "--output", "out", "--budget", "long"], "expected a duration"),
        (["--job", "true", "--output", "out", "--seed-records", "in=absent"], "absent"),
        (["--file", "absent.toml"], "absent.toml"),
        (["--job", "no-such-program", "--output", "out"], "no-such-program: command not found"),
    ],
)
@pytest.mark.usefixtures("directory")
def test_an_invalid_command_line_is_refused_with_a_reason(words: list[str], message: str) -> None:
    result = CliRunner().invoke(certify, words)
    assert result.exit_code == 2
    assert message in result.output


def options(job: Path) -> list[str]:
    command = f"{sys.executable} {job} {{bootstrap}} {{instance}} {{data}}"
    topics = ["--topic", "in:1", "--topic", "out:1", "--seed-records", "in=in.ndjson"]
    return ["--job", command, *topics, "--output", "out"]


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_failure_is_reported_and_reproduced_by_its_id(directory: Path) -> None:
    said = options(ZOO / "wrong" / "offsets_outside.py")
    result = CliRunner().invoke(certify, [*said, "--failures", "1", "--json"])
    assert result.exit_code == 1, result.output
    found = json.loads((directory / "certificate" / "certificate.json").read_text())
    assert (found["verdict"], found["exit_code"], found["version"]) == ("failed", 1, 2)
    (failure, *_) = found["failures"]
    assert "offsets-outside" in {each["name"] for each in (*failure["diagnosis"], *found["lints"])}
    again = CliRunner().invoke(certify, ["again", failure["plan_id"], "--json"])
    assert again.exit_code == 1, again.output
    assert json.loads(again.output.splitlines()[-1])["findings"]


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
@pytest.mark.usefixtures("directory")
def test_a_job_that_does_not_work_cannot_be_judged() -> None:
    words = ["--job", f"{sys.executable} -c 'import sys; sys.exit(5)'", "--output", "out", "--topic", "out:1"]
    result = CliRunner().invoke(certify, [*words, "--restart", "never", "--until", "exit"])
    assert result.exit_code == 2
    assert "did not finish without faults" in result.output
