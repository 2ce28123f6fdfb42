"""The settings of the authorizer, from the configuration to the resulting authorizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from broker.config import broker_config
from broker.security.authorizer.settings import STANDARD_AUTHORIZER, authorizer_of
from server.options import parse
from storage.config_def import ConfigError
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[4]
STANDARD = {"authorizer.class.name": STANDARD_AUTHORIZER}


def test_there_is_none_by_default() -> None:
    assert authorizer_of(broker_config().values) is None
    assert authorizer_of(broker_config({"authorizer.class.name": "", "super.users": "?"}).values) is None


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", set()),
        ("User:a", {"User:a"}),
        (" User:a ;User:CN=x,O=y; ;", {"User:a", "User:CN=x,O=y"}),
        ("Group:g:h", {"Group:g:h"}),
    ],
)
def test_super_users(text: str, users: set[str]) -> None:
    settings = authorizer_of(broker_config(STANDARD | {"super.users": text}).values)
    assert settings is not None
    assert settings.super_users == users


@pytest.mark.parametrize(
    ("text", "allowed"), [("true", True), (" TRUE ", True), ("false", False), ("yes", False)]
)
def test_allow_everyone_if_no_acl_found(text: str, allowed: bool) -> None:
    settings = authorizer_of(broker_config(STANDARD | {"allow.everyone.if.no.acl.found": text}).values)
    assert settings is not None
    assert settings.allow_everyone_if_no_acl_found is allowed


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            STANDARD | {"super.users": "User:a;b"},
            "super.users: expected a string in format principalType:principalName but got b",
        ),
        (
            {"authorizer.class.name": "org.example.Ours"},
            f"authorizer.class.name=org.example.Ours: unknown class, only {STANDARD_AUTHORIZER} is supported.",
        ),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer kept its ACLs in ZooKeeper, "
            f"and Kafka 4 has removed it: use {STANDARD_AUTHORIZER}.",
        ),
    ],
)
def test_invalid_settings_fail_the_start(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        authorizer_of(broker_config(settings).values)
    assert str(refused.value) == text
    arguments = [f"--set={name}={value}" for name, value in settings.items()]
    with pytest.raises(click.ClickException) as ended:
        parse(arguments, {})
    assert text in ended.value.message


def test_a_broker_without_an_authorizer_does_not_load_one() -> None:
    program = (
        "import sys\n"
        "from server.options import parse\n"
        "from broker.cluster import Cluster\n"
        "parse(['--set=num.partitions=2'], {})\n"
        "print([name for name in sys.modules if name.startswith('broker.security.authorizer.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout == "[]\n"
