"""The value of ``--job``: a shell command line or a list of words, with placeholders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from odradek.certify.jobs.command import SHELL, Command

VALUES = {"bootstrap": "h:1", "instance": "2", "run": "reference", "data": "/a folder/it's"}


@pytest.mark.parametrize(
    ("text", "words", "assigned"),
    [
        ("python job.py {bootstrap}", ["python", "job.py", "h:1"], {}),
        (
            "A=1 B='x {run}' python 'a b' --at={bootstrap}",
            ["python", "a b", "--at=h:1"],
            {"A": "1", "B": "x reference"},
        ),
        ("java -Dx=y '$HOME' \"a * b\" {data}", ["java", "-Dx=y", "$HOME", "a * b", "/a folder/it's"], {}),
        ("awk '{print}' '{\"a\": 1}'", ["awk", "{print}", '{"a": 1}'], {}),
        ("  python -c 'a\nb'\n", ["python", "-c", "a\nb"], {}),
    ],
)
def test_a_simple_command_is_started_without_a_shell(
    text: str, words: list[str], assigned: dict[str, str]
) -> None:
    command = Command.parse(text)
    assert not command.is_script
    assert command.filled(VALUES) == words
    assert command.environment(VALUES) == assigned


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("python $HOME/x {bootstrap}", "exec python $HOME/x h:1"),
        ('python "$A" >log', 'exec python "$A" >log'),
        ("A=$B python x", "exec env A=$B python x"),
        ("cd x && python job.py {bootstrap}", "cd x && python job.py h:1"),
        ("produce | python job.py", "produce | python job.py"),
        ("exec java -jar x", "exec java -jar x"),
        ("a\nb", "a\nb"),
        (
            "cd x && echo {data} \"$A {data}\" '{data}' ${data}",
            "cd x && echo '/a folder/it'\"'\"'s' \"$A /a folder/it's\" '/a folder/it'\"'\"'s' ${data}",
        ),
    ],
)
def test_what_needs_a_shell_gets_one(text: str, script: str) -> None:
    assert Command.parse(text).filled(VALUES) == [*SHELL, script]


def test_a_value_is_one_word_in_whatever_quotation_it_stands(tmp_path: Path) -> None:
    nasty = "a  b'c\"d$HOME`e`\\f"
    command = Command.parse("""printf '[%s]' {data} "{data}" '{data}' && true""")
    said = subprocess.run(command.filled({"data": nasty}), capture_output=True, text=True, check=True)
    assert said.stdout == f"[{nasty}]" * 3


def test_reports_show_all_of_it() -> None:
    assert Command.parse("A=1 python 'a b'").shown == ["A=1", "python", "a b"]
    assert Command.parse("python $X").shown == [*SHELL, "exec python $X"]
    assert Command.parse((), container=["-v", "a:b", "image"]).shown == [
        "docker",
        "create",
        "-v",
        "a:b",
        "image",
    ]


def test_a_list_of_words_stays_as_it_is() -> None:
    assert Command.parse(["a", "A=1", "$B && c", "{run}"]).filled(VALUES) == [
        "a",
        "A=1",
        "$B && c",
        "reference",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ([], "is empty"),
        ("A=1", "is empty"),
        ("python '", "quotation"),
        ("python job.py {bootstap}", r"unknown placeholder \{bootstap\}; did you mean \{bootstrap\}\?"),
        ("python job.py '{Bootstrap}'", r"did you mean \{bootstrap\}\?"),
        ("cd x && python --at={brokers}", r"unknown placeholder \{brokers\} \(known: \{bootstrap\}, "),
        (["python", "{bootstap}"], r"did you mean \{bootstrap\}\?"),
    ],
)
def test_an_invalid_command_is_refused_with_a_reason(text: str | list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Command.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no-such-program x", "no-such-program: command not found"),
        ("mine", r"mine: command not found; did you mean \./mine"),
        ("./mine", r"\./mine is not executable \(chmod \+x \./mine\)"),
        ("./absent $X", r"\./absent does not exist"),
        ("./folder", r"\./folder is a directory"),
        ("no-such-program $HOME", "no-such-program: command not found"),
        ("PATH=/absent env", "env: command not found"),
        ("cd x && (", "yntax"),
    ],
)
def test_what_cannot_be_started_is_said_before_a_broker_is(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine").touch(mode=0o644)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=message):
        Command.parse(text, tmp_path).check()


def test_what_can_be_started_passes(tmp_path: Path) -> None:
    (tmp_path / "mine").touch(mode=0o755)
    for text in (
        "./mine",
        "env",
        "cd x && y",
        "for a in b; do c; done",
        "{data}/program",
        f"{os.fsdecode(b'/bin/sh')} x",
    ):
        Command.parse(text, tmp_path).check()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the directory .*/absent does not exist"):
        Command.parse("env", tmp_path / "absent").check()
