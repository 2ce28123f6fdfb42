"""Tests of the image as any user: the broker serves (OpenShift, hardened clusters), or prints a sentence with the remedy."""

from __future__ import annotations

import pytest

from tests.support.docker import Docker

pytestmark = [pytest.mark.docker, pytest.mark.slow]

DATA = "/var/lib/kafka/data"
HARDENED = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")

STARTS = {
    "the image's own": (),
    "any uid, group 0": ("--user", "1000650000:0"),
    "any uid and group": ("--user", "1001:1001"),
    "root": ("--user", "0:0"),
    "no capability": ("--cap-drop", "ALL"),
    "a read-only root": ("--read-only",),
    "a read-only root and data in memory": ("--read-only", "--tmpfs", DATA),
    "data in memory": ("--tmpfs", DATA),
    "data in memory of any uid": ("--tmpfs", DATA, "--user", "1000650000:0"),
    "all of it at once": (*HARDENED, "--read-only", "--tmpfs", DATA, "--user", "1000650000:0"),
}


@pytest.mark.parametrize("name", STARTS)
def test_it_serves_and_keeps_records_through_a_restart(docker: Docker, name: str):
    with docker.container(STARTS[name]) as broker:
        broker.until_healthy()
        broker.says("odradek", "produce", "orders", "paid", "-x", "shop")
        assert "paid" in broker.says("odradek", "consume", "orders")
        # Data on a tmpfs is deleted with the container.
        if "--tmpfs" not in STARTS[name]:
            docker("restart", broker.name)
            broker.until_healthy()
            assert "paid" in broker.says("odradek", "consume", "orders")
        assert broker.stop() == 0, broker.log


ENDS = {
    "memory that belongs to root": (("--tmpfs", f"{DATA}:mode=755"), ("--user 0:0", "chown -R 1000:1000")),
    "no place to write": (
        ("--read-only", "--env", "KAFKA_LOG_DIRS=/srv/kafka"),
        ("read-only", "--tmpfs /srv/kafka"),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_with_one_sentence_that_names_the_remedy(docker: Docker, name: str):
    options, cures = ENDS[name]
    with docker.container(options) as broker:
        assert broker.until_over() != 0
        [said] = broker.log.strip().splitlines()
        for cure in cures:
            assert cure in said


@pytest.mark.parametrize("group", ["0", "2000"])
def test_a_volume_written_by_another_uid_of_the_group_works(docker: Docker, group: str):
    """Two users of one group write to a volume in turn: of group 0 (OpenShift), or of a group with setgid (`fsGroup`)."""
    with docker.volume() as volume:
        # Docker would initialise an empty volume with the image's directory at each start.
        mount = ("--volume", f"{volume}:{DATA}:nocopy" if group != "0" else f"{volume}:{DATA}")
        if group != "0":
            prepare = f"chgrp {group} {DATA} && chmod 2775 {DATA}"
            with docker.container(["--user", "0:0", *mount], ["sh", "-c", prepare]) as once:
                assert once.until_over() == 0, once.log
        for uid, expected in (("1001", 1), ("1002", 2)):
            with docker.container(["--user", f"{uid}:{group}", *mount]) as broker:
                broker.until_healthy()
                broker.says("odradek", "produce", "orders", "paid", "-x", "shop")
                read = broker.says("odradek", "consume", "orders")
                assert read.count("paid") == expected
                assert broker.stop() == 0, broker.log


def test_the_error_for_a_volume_of_another_user_names_both_remedies(docker: Docker):
    with docker.volume() as volume:
        mount = ("--volume", f"{volume}:{DATA}")
        with docker.container(["--user", "1001:1001", *mount]) as broker:
            broker.until_healthy()
            broker.says("odradek", "produce", "orders", "paid")
        with docker.container(["--user", "1002:1002", *mount]) as broker:
            assert broker.until_over() != 0
            [said] = broker.log.strip().splitlines()
            assert "docker run --user 1001:" in said
            assert "chown -R 1002:1002" in said
