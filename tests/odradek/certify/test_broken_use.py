"""Misuse of `odradek certify` is reported soon. `make test` has the tests without a job, `make more` the others."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.certify import reports
from odradek.commands.certify import certify
from tests.odradek.certify.zoo import python
from tests.support.deadlines import HANG_S, LONG_TEST_S

JOB = ("--job", f"{sys.executable} job.py {{bootstrap}}")
TOPICS = ("--topic", "in:2", "--topic", "out:2")
IO = (*TOPICS, "--seed-records", "in=in.ndjson", "--output", "out")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"key": "k", "value": "v"}\n' * 20)
    (tmp_path / "bad.ndjson").write_text('{"key": "k", "value": "v"}\n{"key": "k" "value": "v"}\n')
    return tmp_path


def refused(*words: str) -> str:
    """The output of `odradek certify` with these arguments, which must end it with exit code 2."""
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
        ((*JOB, *TOPICS, "--output", "out", "--seed-records", "in=bad.ndjson"), "bad.ndjson:2: not JSON"),
        ((*JOB, *IO, "--budget", "0s"), "--budget '0s': expected a duration"),
        ((*JOB, *IO, "--until", "soon"), "--until 'soon': expected"),
        ((*JOB, *IO, "again", "12345678"), "there is no certificate in certificate/"),
        (("--output", "out"), "--job is missing"),
        (("--job", "pyhton job.py", *IO), "the job cannot be started: pyhton: command not found"),
        ((*JOB, *IO, "--check", ""), "--check is empty"),
        ((*JOB, *IO, "--until", "records=0"), "--until 'records=0': expected"),
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
        ('job = "x"\noutptu = ["out"]\n', "unknown option outptu (did you mean output?)"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, message: str, directory: Path) -> None:
    (directory / "certify.toml").write_text(text)
    assert message in refused()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is in use."""
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        yield used.getsockname()[1]


@pytest.fixture
def other(directory: Path) -> Iterator[None]:
    """Another command that writes its reports to the same directory."""
    with reports.alone(directory / "certificate"):
        yield


@pytest.mark.usefixtures("other")
def test_two_commands_do_not_write_to_one_directory() -> None:
    assert "another odradek certify writes to certificate/" in refused(*JOB, *IO)


def test_a_port_in_use_is_named(port: int) -> None:
    assert f"--live-port {port}: " in refused(*JOB, *IO, "--live-port", str(port))


# -- with a job ------------------------------------------------------------------------------------------------------------

COPIER = " ".join([*python("right/copier"), "{bootstrap}", "{instance}"])


def not_judged(directory: Path, program: str) -> str:
    """The output for a job with this program text, which cannot be judged."""
    (directory / "job.py").write_text(program)
    said = refused(*JOB, *IO)
    assert "NOT JUDGED" in said
    return said


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_job_that_dies_three_times_alike_ends_the_command_with_its_last_lines(directory: Path) -> None:
    said = not_judged(directory, "print('begins'\n")
    assert "the job ended 3 times with exit code 1" in said
    assert "SyntaxError: '(' was never closed" in said


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_job_that_ends_at_once_has_written_nothing(directory: Path) -> None:
    said = not_judged(directory, "print('nothing to do')\n")
    assert "the job wrote no committed record to out: it wrote nothing" in said
    assert "nothing to do" in said


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_job_that_writes_to_another_topic_is_told_its_name(directory: Path) -> None:
    copier = Path(python("right/copier")[-1]).read_text(encoding="utf-8")
    said = not_judged(
        directory, copier.replace('produce("out"', 'produce("elsewhere"').replace("sys.argv[2]", '"1"')
    )
    assert "it wrote to elsewhere" in said


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_ctrl_c_leaves_the_reports(directory: Path) -> None:
    command = [str(Path(sys.executable).with_name("odradek")), "certify", "--job", COPIER, *IO]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("two runs without faults passed" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "INTERRUPTED" in said
    assert {"certificate.html", "certificate.json", "junit.xml"} <= {
        each.name for each in (directory / "certificate").iterdir()
    }
