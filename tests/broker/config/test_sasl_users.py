"""Parsing the users of --sasl and of ODRADEK_SASL."""

import pytest

from broker.config.sasl_users import given_users
from storage.config_def import ConfigError


def parsed(*options: str, variable: str = "") -> list[tuple[str, str, str | None]]:
    return [(each.name, each.password, each.mechanism) for each in given_users(options, variable)]


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("alice:secret", ("alice", "secret", None)),
        ("alice:secret:PLAIN", ("alice", "secret", "PLAIN")),
        ("alice:secret:scram-sha-256", ("alice", "secret", "SCRAM-SHA-256")),
        ("alice:se:cr;et:SCRAM-SHA-512", ("alice", "se:cr;et", "SCRAM-SHA-512")),
        ("alice:PLAIN", ("alice", "PLAIN", None)),
        ("alice:plain:PLAIN", ("alice", "plain", "PLAIN")),
        ("alice: x ", ("alice", " x ", None)),
    ],
)
def test_a_user_has_a_password_and_may_have_a_mechanism(text: str, user: tuple[str, str, str | None]):
    assert parsed(text) == [user]


def test_the_variable_has_a_user_in_each_line_or_between_semicolons():
    assert parsed(variable="a:1;b:2:PLAIN; ") == [("a", "1", None), ("b", "2", "PLAIN")]
    # In a value with several lines a semicolon is part of the password. One line break is enough.
    assert parsed(variable="a:1;b\n") == [("a", "1;b", None)]
    assert parsed(variable="\na:1\r\nb:2\n") == [("a", "1", None), ("b", "2", None)]


def test_an_option_decides_over_the_variable():
    assert parsed("a:1", variable="a:2:PLAIN;b:3") == [("a", "1", None), ("b", "3", None)]


def test_a_user_may_have_a_password_for_each_mechanism():
    assert len(parsed("a:1:PLAIN", "a:2:SCRAM-SHA-256", "a:1:PLAIN")) == 3


@pytest.mark.parametrize(
    ("options", "variable", "message"),
    [
        (["hunter2"], "", "--sasl: expected USER:PASSWORD"),
        ([":hunter2"], "", "--sasl: expected USER:PASSWORD"),
        (["alice:"], "", "--sasl alice: expected USER:PASSWORD[:MECHANISM], and the password is empty"),
        (["alice::PLAIN"], "", "--sasl alice: expected"),
        (
            ["alice:hunter2:SCRAM-SHA-1"],
            "",
            "--sasl alice: unknown mechanism SCRAM-SHA-1 (known: PLAIN, SCRAM-",
        ),
        (["alice:hunter2:OAUTHBEARER"], "", "unknown mechanism OAUTHBEARER"),
        (["alice:hunter2", "alice:hunter3:PLAIN"], "", "--sasl alice: two different passwords for PLAIN"),
        ([], "alice:hunter2;hunter3", "ODRADEK_SASL: expected USER:PASSWORD"),
    ],
)
def test_what_is_no_user_is_refused_without_its_password(options: list[str], variable: str, message: str):
    with pytest.raises(ConfigError) as error:
        given_users(options, variable)
    assert message in str(error.value)
    assert "hunter" not in str(error.value)


def test_a_password_is_not_shown():
    assert "hunter2" not in repr(given_users(["alice:hunter2"], "bob:hunter2"))
