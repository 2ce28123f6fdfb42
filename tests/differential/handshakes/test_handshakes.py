"""Each handshake script at our broker gets the responses that were recorded with Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.handshakes.record import RECORDED
from tests.differential.handshakes.scripts import LISTENERS, PASSWORDS, SCRIPTS, run, settings
from tests.support.listeners import listening

pytestmark = pytest.mark.xdist_group("handshakes")


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    home = tmp_path_factory.mktemp("handshakes")
    with listening(dict.fromkeys(LISTENERS, "SASL_PLAINTEXT"), settings(), home) as ports:
        add_users(f"127.0.0.1:{ports['PLAINTEXT']}")
        yield ports


def add_users(bootstrap: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialAlteration,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credentials = ScramCredentialInfo(mechanism, 4096)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, credentials, password.encode())
            for user, password in PASSWORDS.items()
        ]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result()


RECORDINGS = json.loads(Path(RECORDED).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_kafka(name: str, ports: dict[str, int]) -> None:
    assert run(name, ports) == RECORDINGS[name]
