"""The content of the image, its build, and the commands that users run in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.docker import IMAGE, ROOT, Docker

pytestmark = [pytest.mark.docker, pytest.mark.slow]

ADDED_BYTES_MAX = 60_000_000
SERVER = ("--bootstrap-server", "localhost:9092")


def test_it_adds_60_mb_at_most_to_its_base(docker: Docker):
    whole, base = (
        int(docker("image", "inspect", "--format", "{{.Size}}", image))
        for image in (IMAGE, "python:3.11-slim")
    )
    assert whole - base <= ADDED_BYTES_MAX


def test_it_has_neither_compiler_nor_what_compiled_it(docker: Docker):
    names = ("cython", "Cython", "setuptools", "gcc", "cc", "cc1", "ld", ".gitkeep")
    search = " -o ".join(f"-name {name}" for name in names)
    command = ["-c", rf"find / -xdev \( {search} \) -not -path '/usr/share/*' -not -path '/usr/local/lib/*'"]
    assert docker("run", "--rm", "--user", "0:0", "--entrypoint", "sh", IMAGE, *command) == ""
    assert "compiled core and modules" in docker("run", "--rm", IMAGE, "odradek", "--version")


def test_the_umask_of_the_checkout_does_not_matter(docker: Docker, tmp_path: Path):
    clone = tmp_path / "clone"
    # The requirements get mode 644 again: with another mode, Docker rebuilds the layers of the dependencies.
    command = f"umask 077 && git clone --quiet {ROOT} {clone} && chmod 644 {clone}/requirements/*"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    image = docker.build(clone, f"{IMAGE}-umask")
    try:
        with docker.container(["--user", "1001:1001"], image=image) as broker:
            broker.until_healthy()
            broker.says("kafka-topics", *SERVER, "--list")
            broker.says("odradek", "produce", "orders", "paid")
    finally:
        docker("image", "rm", "--force", image)


def test_its_labels_are_those_of_opencontainers(docker: Docker):
    labels = docker("image", "inspect", "--format", "{{json .Config.Labels}}", IMAGE)
    for name in ("title", "description", "version", "licenses", "base.name"):
        assert f'"org.opencontainers.image.{name}"' in labels


# The health checks of compose files for other images, and the first commands of those images' documentation.
CALLS = {
    "apache": ("kafka-topics.sh", *SERVER, "--list"),
    "apache by path": ("/opt/kafka/bin/kafka-topics.sh", *SERVER, "--list"),
    "apache's versions": ("/opt/kafka/bin/kafka-broker-api-versions.sh", *SERVER),
    "confluent": ("kafka-topics", *SERVER, "--list"),
    "confluent's cluster": ("kafka-cluster", "cluster-id", *SERVER),
    "apache's cluster": ("kafka-cluster.sh", "cluster-id", *SERVER),
    "offsets": ("kafka-get-offsets.sh", *SERVER),
    "offsets of confluent": ("kafka-get-offsets", *SERVER),
    "bitnami": ("/opt/bitnami/kafka/bin/kafka-topics.sh", *SERVER, "--list"),
    "groups": ("kafka-consumer-groups.sh", *SERVER, "--list"),
    "nc": ("nc", "-z", "localhost", "9092"),
    "nc that says more": ("nc", "-zv", "localhost", "9092"),
    "bash": ("bash", "-c", "</dev/tcp/localhost/9092"),
    "odradek": ("odradek", "health"),
    "wget": ("wget", "-q", "-O-", "http://127.0.0.1:18092/ready"),
}


def test_health_checks_for_other_images_work(docker: Docker):
    with docker.container(
        ["--env", "ODRADEK_CONTROL_PORT=18092", "--env", "ODRADEK_CONTROL_HOST=127.0.0.1"]
    ) as broker:
        broker.until_healthy()
        broker.says("odradek", "produce", "orders", "paid")
        failed = {name: broker.tried(*call) for name, call in CALLS.items()}
        assert {name: done.stderr for name, done in failed.items() if done.returncode} == {}


def test_health_checks_fail_for_a_port_without_a_broker(docker: Docker):
    """A port that accepts connections without speaking Kafka's protocol fails every check."""
    with docker.container(arguments=["sleep", "infinity"]) as idle:
        calls = {name: call for name, call in CALLS.items() if name != "bash"}
        assert [name for name, call in calls.items() if idle.tried(*call).returncode == 0] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--version",), 0, "odradek 0."),
        (("help",), 0, "topic"),
        (("topics", "list"), 2, "topic"),
        (("--prot", "9095"), 2, "--port"),
        (("num.partitions=many",), 2, "num.partitions"),
    ],
)
def test_commands_that_users_type(docker: Docker, words: tuple[str, ...], code: int, said: str):
    done = docker.tried("run", "--rm", IMAGE, *words)
    assert done.returncode == code, done
    assert said in done.stdout + done.stderr
