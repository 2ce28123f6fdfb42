"""An error about a missing dependency says how to install it, also for an installation from a folder."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from odradek import extras


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'odradek[demo]'"),
        (
            {"url": "file:///src/my%20odradek", "dir_info": {"editable": True}},
            "pip install '/src/my odradek[demo]'",
        ),
        (
            {"url": "https://example.org/o.git", "vcs_info": {"vcs": "git"}},
            "pip install 'odradek[demo] @ git+https://example.org/o.git'",
        ),
        (
            {"url": "file:///wheels/odradek.whl", "archive_info": {}},
            "pip install '/wheels/odradek.whl[demo]'",
        ),
    ],
)
def test_the_command_installs_from_where_it_came(
    origin: dict[str, object] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extras, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert extras.install_command("demo") == command
