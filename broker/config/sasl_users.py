"""Users of the start: `--sasl alice:secret:SCRAM-SHA-256`, and the same in the variable ``ODRADEK_SASL``. Pure.

No text here repeats a password.
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
# What looks like a mechanism is no end of a password.
_OTHER_MECHANISM: Final = re.compile(r"SCRAM(-.*)?|GSSAPI|OAUTHBEARER|DIGEST-MD5")


@slotted(frozen=True)
class User:
    """One who may log in by a mechanism."""

    name: str
    mechanism: str
    password: str = field(repr=False)


@slotted(frozen=True)
class GivenUser:
    """As an option or the variable says it."""

    name: str
    mechanism: str | None
    """None: all that the listener has of `MECHANISMS`."""
    password: str = field(repr=False)
    where: str = OPTION

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS if self.mechanism is None else (self.mechanism,)


def given_users(options: Iterable[str], variable: str) -> tuple[GivenUser, ...]:
    """All users; of one that both name the options count. `ConfigError` for what is no user, or is given twice."""
    by_option = [_parse(text, OPTION) for text in options]
    names = {each.name for each in by_option}
    by_variable = [_parse(text, VARIABLE) for text in _entries(variable)]
    users = (*by_option, *(each for each in by_variable if each.name not in names))
    _check_different(users)
    return users


def _entries(text: str) -> Iterator[str]:
    """One in each line. A text of one line may have semicolons between them; else they belong to passwords."""
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
        raise ConfigError(f"{where} {name}: there is no mechanism {mechanism}, only {', '.join(MECHANISMS)}")
    if not rest:
        raise ConfigError(f"{where} {name}: {EXPECTED}, and the password is empty")
    return GivenUser(name.strip(), mechanism if mechanism in MECHANISMS else None, rest, where)


def _check_different(users: Iterable[GivenUser]) -> None:
    passwords: dict[tuple[str, str], str] = {}
    for user in users:
        for mechanism in user.mechanisms:
            if passwords.setdefault((user.name, mechanism), user.password) != user.password:
                raise ConfigError(f"{user.where} {user.name}: it has two passwords for {mechanism}")
