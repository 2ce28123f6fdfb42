"""Parses the users of `--sasl alice:secret:SCRAM-SHA-256` and of the variable ``ODRADEK_SASL``. Pure.

No error message contains a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from protocol.slotted import slotted
from storage.config_def import ConfigError

OPTION: Final = "--sasl"
VARIABLE: Final = "ODRADEK_SASL"
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
EXPECTED: Final = "expected USER:PASSWORD[:MECHANISM]"
# Text after the last colon that looks like the name of another mechanism is an error, not a part of the password.
_OTHER_MECHANISM: Final = re.compile(r"SCRAM(-.*)?|GSSAPI|OAUTHBEARER|DIGEST-MD5")


@slotted(frozen=True)
class User:
    """A user that logs in by one mechanism."""

    name: str
    mechanism: str
    password: str = field(repr=False)


@slotted(frozen=True)
class GivenUser:
    """A user as written in the command-line option or in the environment variable."""

    name: str
    mechanism: str | None
    """The user's mechanism; None for every mechanism in `MECHANISMS` that the listener has enabled."""
    password: str = field(repr=False)
    where: str = OPTION

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS if self.mechanism is None else (self.mechanism,)


def given_users(options: Iterable[str], variable: str) -> tuple[GivenUser, ...]:
    """Parse the users of the options and of the variable. An option overrides the variable's user of the same name.

    Raises `ConfigError` for an invalid or repeated user.
    """
    by_option = [_parse(text, OPTION) for text in options]
    names = {each.name for each in by_option}
    by_variable = [_parse(text, VARIABLE) for text in _entries(variable)]
    users = (*by_option, *(each for each in by_variable if each.name not in names))
    _check_different(users)
    return users


def _entries(text: str) -> Iterator[str]:
    """Split the variable into its users: one user in each line, or, in a text of one line, separated by semicolons."""
    lines = text.split("\n") if "\n" in text else text.split(";")
    return (line.rstrip("\r") for line in lines if line.strip())


def _parse(text: str, where: str) -> GivenUser:
    name, colon, rest = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"{where}: {EXPECTED}")
    password, colon, last = rest.rpartition(":")
    mechanism = last.strip().upper() if colon else ""
    if mechanism in MECHANISMS:
        rest = password
    elif _OTHER_MECHANISM.fullmatch(mechanism):
        raise ConfigError(f"{where} {name}: unknown mechanism {mechanism} (known: {', '.join(MECHANISMS)})")
    if not rest:
        raise ConfigError(f"{where} {name}: {EXPECTED}, and the password is empty")
    return GivenUser(name.strip(), mechanism if mechanism in MECHANISMS else None, rest, where)


def _check_different(users: Iterable[GivenUser]) -> None:
    passwords: dict[tuple[str, str], str] = {}
    for user in users:
        for mechanism in user.mechanisms:
            if passwords.setdefault((user.name, mechanism), user.password) != user.password:
                raise ConfigError(f"{user.where} {user.name}: two different passwords for {mechanism}")
