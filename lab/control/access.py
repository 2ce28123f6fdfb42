"""Who may call the control port. Pure: headers in, a refusal or nothing out.

The port can kill nodes and lose data, so a web page that its owner happens to visit must not reach it. Three rules see to
that, and each of them alone would stop one kind of page:

- The request's ``Host`` is loopback or listed, whatever address it resolved to (DNS rebinding). A port with a token, which
  such a page cannot know, may be called by any name.
- The ``Origin``, which only browsers add, is loopback or listed (a form or a script of another site).
- A call that changes something says ``Content-Type: application/json``, which a page may not send elsewhere unasked.

A port that other machines can reach wants a token as well, in every call. A token has a role, and each operation says which
role it needs.
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
    """The control port cannot be opened like this; the text is an error message for the operator."""


class Role(IntEnum):
    """What a caller may do. Each role may do what those before it may."""

    LOOK = 1
    """See everything, records too, and change nothing."""
    STAGE = 2
    """Change what the broker does and has: rules, time, topics, resets."""
    STOP = 3
    """End nodes, and damage their files."""

    def __str__(self) -> str:
        return self.name.lower()


_SETTINGS: Final = {
    Role.STOP: TOKEN_SETTING,
    Role.STAGE: STAGE_TOKEN_SETTING,
    Role.LOOK: LOOK_TOKEN_SETTING,
}


class Tokens(NamedTuple):
    """A token for each role; an empty one is none."""

    stop: str = ""
    stage: str = ""
    look: str = ""

    def by_role(self) -> Iterator[tuple[Role, str]]:
        return zip((Role.STOP, Role.STAGE, Role.LOOK), self, strict=True)

    def __repr__(self) -> str:
        return f"Tokens({', '.join(str(role) for role, token in self.by_role() if token)})"

    def check(self) -> None:
        """``ControlConfigError`` for tokens that cannot be."""
        given = [token for token in self if token]
        for role, token in self.by_role():
            if not token.isascii():
                raise ControlConfigError(
                    f"{_SETTINGS[role]}: a token is of ASCII characters, as HTTP headers are"
                )
            if given.count(token) > 1:
                raise ControlConfigError(f"{_SETTINGS[role]}: each role has a token of its own")


NO_TOKENS: Final = Tokens()


@slotted(frozen=True)
class Access:
    """The rules of one control port, from what it was started with."""

    tokens: Tokens = NO_TOKENS
    hosts: frozenset[str] = frozenset()
    """Names and addresses beside loopback by which it may be called, in lower case."""

    @classmethod
    def of(cls, bind_host: str, tokens: Tokens = NO_TOKENS, allowed_hosts: Collection[str] = ()) -> Access:
        """``ControlConfigError`` for a port that others could reach without a token."""
        tokens.check()
        if not any(tokens) and not is_loopback(bind_host):
            raise ControlConfigError(
                f"--control-host {bind_host}: a control port that other machines can reach wants a token; "
                f"set {TOKEN_SETTING} or the variable {TOKEN_VARIABLE}"
            )
        own = () if bind_host in _WILDCARDS else (bind_host,)
        return cls(tokens, frozenset(host.strip().strip("[]").lower() for host in (*allowed_hosts, *own)))

    @property
    def wants_token(self) -> bool:
        return any(self.tokens)

    def check(self, *, headers: Mapping[str, str], changes_state: bool, needed: Role = Role.LOOK) -> Role:
        """The role of a call with these headers, of which names are in lower case; ``HttpError`` if it may not be made."""
        self.check_page(headers)
        role = self._role_of(headers.get("authorization"))
        require(role, needed)
        if changes_state and _media_type(headers.get("content-type", "")) != JSON:
            raise HttpError(
                415, f"a call that changes something needs Content-Type: {JSON}, also without a body"
            )
        return role

    def check_page(self, headers: Mapping[str, str]) -> None:
        """The same for the files of the page: a browser asks for them without a token, and they say nothing."""
        host = headers.get("host", "")
        # A page cannot know the token: with one, the port may be called by any name.
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
        """Without tokens every caller may do everything."""
        if not self.wants_token:
            return Role.STOP
        if authorization is None:
            raise HttpError(401, "the control port wants its token in the header Authorization: Bearer TOKEN")
        scheme, _, given = authorization.partition(" ")
        found = None
        for role, token in self.tokens.by_role():
            # Compared in constant time: the duration must not show how much of it was right.
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
    """``HttpError`` for a role that is too low."""
    if role < needed:
        raise HttpError(403, f"this needs the role {needed}, and the token has the role {role}")


def is_loopback(host: str) -> bool:
    """Whether this name or address can only be this machine itself (RFC 6761 for the names)."""
    host = host.lower().rstrip(".")
    # The usual address comes first: a start with a control port loads no module for it.
    if host in ("127.0.0.1", "localhost") or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(host_and_port: str) -> str | None:
    """The host of a Host header, in lower case; None if it is not one."""
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
