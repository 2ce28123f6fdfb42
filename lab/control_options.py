"""Command-line options of the control port and of the fault rules at the start, the same for broker and proxy."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from broker.config import DEFAULT_HOST
from broker.config.settings import ControlPort

if TYPE_CHECKING:
    import click

FAULTS_VARIABLE: Final = "ODRADEK_FAULTS"
CONTROL_HOST_VARIABLE: Final = "ODRADEK_CONTROL_HOST"
CONTROL_PORT_VARIABLE: Final = "ODRADEK_CONTROL_PORT"
PORT_MAX: Final = 65535
LOG_FORMATS: Final = ("auto", "human", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def usage_error(message: str) -> click.UsageError:
    """The exception for an invalid option. This function imports click, which a start without an error does not need."""
    import click

    return click.UsageError(message)


def bad_setting(message: str) -> click.ClickException:
    """The exception for an invalid setting. The process ends with the same exit code as for an invalid option."""
    import click

    class BadSetting(click.ClickException):
        exit_code = 2

    return BadSetting(message)


def rules_in(text: str) -> tuple[str, ...]:
    """The rules in a text, separated by newlines or semicolons."""
    return tuple(filter(None, (rule.strip() for rule in re.split(r"[;\n]", text))))


def port_of(text: str) -> int | None:
    """The port in ``CONTROL_PORT_VARIABLE``; None if the variable is empty."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= PORT_MAX):
        raise usage_error(f"{CONTROL_PORT_VARIABLE}: {text!r} is not a port (0 to {PORT_MAX}).")
    return int(text)


def control_port(
    host: str | None,
    port: int,
    token: str,
    allowed_hosts: Collection[str],
    *,
    stage_token: str = "",
    look_token: str = "",
) -> ControlPort:
    """The settings of a control port. Raises ``click.UsageError`` if other machines could reach it without a token."""
    # Imported here, as a start without a control port does not need it.
    from lab.control.access import Access, ControlConfigError, Tokens

    control = ControlPort(DEFAULT_HOST if host is None else host, port)
    try:
        Access.of(control.host, Tokens(token, stage_token, look_token), allowed_hosts)
    except ControlConfigError as error:
        raise usage_error(f"{error}.") from None
    return control
