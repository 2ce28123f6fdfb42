"""The error texts for a start that fails because of a directory or file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.cluster.directories import start_refusal
from server.process import share_with_group
from storage.directory import DirectoryInUse
from storage.files import StorageError


def denied(path: Path) -> PermissionError:
    return PermissionError(errno.EACCES, "Permission denied", str(path))


def test_the_error_for_another_user_s_directory_suggests_a_fix(
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


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "/data is in use by another broker"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            "/data is in use by another broker. A Deployment with a PersistentVolumeClaim needs `strategy: Recreate`: "
            "with the default strategy, the new pod starts while the old pod still runs",
        ),
    ],
)
def test_the_error_for_a_directory_in_use_in_a_pod_suggests_the_strategy(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert start_refusal(DirectoryInUse("/data is in use by another broker")) == said


def test_the_error_for_an_own_directory_has_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "belongs to the broker's user: its mode is 500" in start_refusal(denied(tmp_path / "data"))
    assert start_refusal(OSError(errno.ENOSPC, "No space")) == "[Errno 28] No space"


def test_in_a_pod_the_error_suggests_a_change_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: 1000660000)
    monkeypatch.setattr(os, "getegid", lambda: 1000660000)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    said = start_refusal(denied(tmp_path / "data" / ".lock"))
    assert "securityContext.fsGroup: " in said
    assert said.endswith(f"runAsUser: {owner.st_uid}")
    assert "docker" not in said


def test_another_user_s_file_in_our_directory_gets_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error suggests ``docker run --user`` also if the directory belongs to our group, but another user's file cannot be
    read."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    failure = StorageError(str(tmp_path), denied(tmp_path))
    failure.__cause__ = denied(tmp_path)
    assert "docker run --user" in start_refusal(failure)


@pytest.mark.parametrize(
    ("variables", "cure"), [({}, "--tmpfs /data"), ({"KUBERNETES_SERVICE_HOST": "1"}, "emptyDir")]
)
def test_the_error_for_a_read_only_root_suggests_a_mount(
    variables: dict[str, str], cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = start_refusal(OSError(errno.EROFS, "Read-only file system", "/data/.lock"))
    assert said.startswith("/data/.lock: the file system is read-only.")
    assert cure in said


@pytest.mark.parametrize(
    ("user", "group", "mode", "umask"),
    [
        (1000, 1000, 0o755, 0o022),
        (1000650000, 0, 0o755, 0o002),
        (0, 0, 0o755, 0o022),
        (1000, 1000, 0o2775, 0o002),
    ],
)
def test_files_are_the_group_s_too_where_the_next_user_is_another_of_it(
    user: int, group: int, mode: int, umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getegid", lambda: group)
    before = os.umask(0o022)
    try:
        share_with_group(folder)
        (folder / "node-1").mkdir()
        share_with_group(folder / "node-1" / "further")
        assert os.umask(0o022) == umask
    finally:
        os.umask(before)


def test_the_error_for_a_directory_that_cannot_be_created_suggests_a_mount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error suggests a mount and no `chown`, as the missing directory's parent is the root of the file system."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = start_refusal(denied(Path("/no-such-folder/data")))
    assert "--tmpfs /no-such-folder/data" in said
    assert "chown" not in said


def test_the_fix_for_a_file_is_for_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert start_refusal(denied(lock)).endswith(f" {tmp_path})")
