"""Access control of the control port. Pure: headers in, a role or an ``HttpError`` out.

The port can kill nodes and lose data, so a web page that the user happens to visit must not reach it. Three rules prevent
that, each against one kind of attack:

- The request's ``Host`` is loopback or listed, whatever address it resolved to (against DNS rebinding). If the port has a
  token, any name is allowed, since a malicious page cannot have the token.
- The ``Origin``, which only browsers add, is loopback or listed (against a form or a script of another site).
- A call that changes something has ``Content-Type: application/json``, which a page may not send to another site without
  permission.

A port that other machines can reach also requires a token, in every call. A token has a role, and each operation
declares the role that it requires.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Final
from urllib.parse import urlsplit

from lab.control.errors import HttpError
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

ALLOWED_HOSTS_SETTING: Final = "odradek.control.allowed.hosts"
TOKEN_SETTING: Final = "odradek.control.token"
STAGE_TOKEN_SETTING: Final = "odradek.control.token.stage"
LOOK_TOKEN_SETTING: Final = "odradek.control.token.look"
TLS_CERTIFICATE_SETTING: Final = "odradek.control.tls.certificate"
TLS_KEY_SETTING: Final = "odradek.control.tls.key"
TOKEN_VARIABLE: Final = "ODRADEK_CONTROL_TOKEN"
STAGE_TOKEN_VARIABLE: Final = "ODRADEK_CONTROL_TOKEN_STAGE"
LOOK_TOKEN_VARIABLE: Final = "ODRADEK_CONTROL_TOKEN_LOOK"
TLS_CERTIFICATE_VARIABLE: Final = "ODRADEK_CONTROL_TLS_CERTIFICATE"
TLS_KEY_VARIABLE: Final = "ODRADEK_CONTROL_TLS_KEY"
JSON: Final = "application/json"
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_QUOTED_CHARACTERS_MAX: Final = 100


class ControlConfigError(Exception):
    """The control port cannot be opened with these settings. The message is for the user."""


class Role(IntEnum):
    """The rights of a caller. A higher role may do everything that a lower role may do."""

    LOOK = 1
    """May read everything, records too, and change nothing."""
    STAGE = 2
    """May change the broker's state: rules, time, topics, resets."""
    STOP = 3
    """May end nodes, and damage their files."""

    def __str__(self) -> str:
        return self.name.lower()


_SETTINGS: Final = {
    Role.STOP: TOKEN_SETTING,
    Role.STAGE: STAGE_TOKEN_SETTING,
    Role.LOOK: LOOK_TOKEN_SETTING,
}


class Tokens(NamedTuple):
    """A token for each role. An empty string means that the role has no token."""

    stop: str = ""
    stage: str = ""
    look: str = ""

    def by_role(self) -> Iterator[tuple[Role, str]]:
        return zip((Role.STOP, Role.STAGE, Role.LOOK), self, strict=True)

    def __repr__(self) -> str:
        return f"Tokens({', '.join(str(role) for role, token in self.by_role() if token)})"

    def check(self) -> None:
        """Raise ``ControlConfigError`` if a token is not ASCII, or if two roles have the same token."""
        given = [token for token in self if token]
        for role, token in self.by_role():
            if not token.isascii():
                raise ControlConfigError(
                    f"{_SETTINGS[role]}: a token must consist of ASCII characters, as HTTP headers do"
                )
            if given.count(token) > 1:
                raise ControlConfigError(f"{_SETTINGS[role]}: two roles must not have the same token")


NO_TOKENS: Final = Tokens()


@slotted(frozen=True)
class Access:
    """The access rules of one control port."""

    tokens: Tokens = NO_TOKENS
    hosts: frozenset[str] = frozenset()
    """Allowed names and addresses in the Host header, besides loopback, in lower case."""

    @classmethod
    def of(cls, bind_host: str, tokens: Tokens = NO_TOKENS, allowed_hosts: Collection[str] = ()) -> Access:
        """The access rules of a control port with these settings.

        Raises ``ControlConfigError`` if other machines could reach the port without a token.
        """
        tokens.check()
        if not any(tokens) and not is_loopback(bind_host):
            raise ControlConfigError(
                f"--control-host {bind_host}: a control port that other machines can reach requires a token; "
                f"set {TOKEN_SETTING} or the variable {TOKEN_VARIABLE}"
            )
        own = () if bind_host in _WILDCARDS else (bind_host,)
        return cls(tokens, frozenset(host.strip().strip("[]").lower() for host in (*allowed_hosts, *own)))

    @property
    def wants_token(self) -> bool:
        return any(self.tokens)

    def check(self, *, headers: Mapping[str, str], changes_state: bool, needed: Role = Role.LOOK) -> Role:
        """The role of a call with these headers (names in lower case). Raises ``HttpError`` if the call is not allowed."""
        self.check_page(headers)
        role = self._role_of(headers.get("authorization"))
        require(role, needed)
        if changes_state and _media_type(headers.get("content-type", "")) != JSON:
            raise HttpError(
                415, f"a call that changes something needs Content-Type: {JSON}, also without a body"
            )
        return role

    def check_page(self, headers: Mapping[str, str]) -> None:
        """Raise ``HttpError`` if a request for a file of the web page is not allowed.

        No token is required: browsers send none, and the files contain no data.
        """
        host = headers.get("host", "")
        # A malicious page cannot have the token, so with a token the port may be called by any name.
        if not self.wants_token and not self._is_allowed(_host_of(host)):
            raise HttpError(
                403,
                f"the control port was called as {_quoted(host)}, which is neither loopback nor "
                f"listed in {ALLOWED_HOSTS_SETTING}",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(_origin_host(origin)):
            raise HttpError(
                403,
                f"a page of {_quoted(origin)} may not use the control port: it is neither loopback nor "
                f"listed in {ALLOWED_HOSTS_SETTING}",
            )

    def _role_of(self, authorization: str | None) -> Role:
        """The role of the token in an Authorization header; the highest role if the port has no tokens.

        Raises ``HttpError`` 401 if the token is missing or wrong.
        """
        if not self.wants_token:
            return Role.STOP
        if authorization is None:
            raise HttpError(
                401, "the control port requires its token in the header Authorization: Bearer TOKEN"
            )
        scheme, _, given = authorization.partition(" ")
        found = None
        for role, token in self.tokens.by_role():
            # Compare in constant time, so that the duration does not show how many characters are right.
            is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
            found = role if token and is_right else found
        if scheme.lower() != "bearer" or not given.strip():
            raise HttpError(401, "the header Authorization is not of the form: Bearer TOKEN")
        if found is None:
            raise HttpError(401, "the token in the header Authorization is not one of this control port's")
        return found

    def _is_allowed(self, host: str | None) -> bool:
        return host is not None and (is_loopback(host) or host in self.hosts)


def require(role: Role, needed: Role) -> None:
    """Raise ``HttpError`` if ``role`` is lower than ``needed``."""
    if role < needed:
        raise HttpError(403, f"this call needs the role {needed}, and the token has the role {role}")


def is_loopback(host: str) -> bool:
    """Whether this name or address always means this machine (RFC 6761 for the names)."""
    host = host.lower().rstrip(".")
    # The usual values come first, so that a start with a control port imports no module for the check.
    if host in ("127.0.0.1", "localhost") or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(host_and_port: str) -> str | None:
    """The host in a Host header, in lower case; None if the header is invalid."""
    try:
        parts = urlsplit(f"//{host_and_port}")
        port_is_fine = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    if parts.netloc != host_and_port or parts.username is not None or not port_is_fine:
        return None
    return parts.hostname


def _origin_host(origin: str) -> str | None:
    scheme, separator, host_and_port = origin.partition("://")
    return _host_of(host_and_port) if separator and scheme in ("http", "https") else None


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _quoted(text: str) -> str:
    return repr(text[:_QUOTED_CHARACTERS_MAX])
