"""Tab in a shell: the completion scripts call `odradek` with the command line, and read completions from its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import HANG_S

START = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"


def odradek(*words: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("typed", "follows"),
    [
        ("odradek to", "topic"),
        ("odradek txn h", "hang"),
        ("odradek topic create --if", "--if-not-exists"),
        ("odradek fault re", "release"),
    ],
)
def test_commands_and_options_follow_those_of_other_interpreters_too(typed: str, follows: str) -> None:
    place = str(len(typed.split()) - 1)
    said = odradek(COMP_WORDS=typed, COMP_CWORD=place, _ODRADEK_COMPLETE="bash_complete")
    assert f"plain,{follows}" in said.splitlines()


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", ".local/share/bash-completion/completions/odradek"),
        ("zsh", ".zfunc/_odradek"),
        ("fish", ".config/fish/completions/odradek.fish"),
    ],
)
def test_one_command_installs_the_script(shell: str, path: str, tmp_path: Path) -> None:
    assert path in odradek("completion", "install", HOME=str(tmp_path), SHELL=f"/bin/{shell}")
    assert (tmp_path / path).read_text().strip() == odradek("completion", "show", shell).strip()
