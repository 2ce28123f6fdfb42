"""Why a start failed, said to the person who started the broker."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.cluster.directories import start_refusal


def denied(path: Path) -> PermissionError:
    return PermissionError(errno.EACCES, "Permission denied", str(path))


def test_a_directory_of_another_user_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 1)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    said = start_refusal(denied(tmp_path / "data" / ".lock"))
    assert f"{tmp_path} belongs to user {owner.st_uid}:{owner.st_gid}, and the broker runs as" in said
    assert f"docker run --user {owner.st_uid}:{owner.st_gid}" in said
    assert f"chown -R {owner.st_uid + 1}:7 {tmp_path}" in said
    assert "\n" not in said


def test_a_directory_of_its_own_is_named_with_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "the broker's own: its mode is 500" in start_refusal(denied(tmp_path / "data"))
    assert start_refusal(OSError(errno.ENOSPC, "No space")) == "[Errno 28] No space"
