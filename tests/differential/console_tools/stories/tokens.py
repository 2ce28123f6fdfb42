"""kafka-delegation-tokens on a SASL listener, and logins with tokens (KIP-48, KIP-373).

There is no authorizer: every client can describe all tokens, so each story uses users of its own and describes only their
tokens.
"""

from __future__ import annotations

import re
from typing import Final

from tests.differential.console_tools.sides import MODULES, PASSWORD, SASL
from tests.differential.console_tools.story import ToolStory, story
from tests.support.javaprog import Ran

TOOL: Final = "kafka-delegation-tokens"
TOKEN: Final = re.compile(r"^(\S{22}) +(\S{86}==) ", re.MULTILINE)
UNKNOWN: Final = "A" * 86 + "=="


class Client:
    """Runs commands as one user, who logs in with a password or with a token."""

    def __init__(self, s: ToolStory, user: str, module: str, mechanism: str, options: str) -> None:
        self._s = s
        properties = (
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULES}.{module} required {options};\n"
        )
        self._config = s.file(f"{user}.properties", properties)

    def run(self, *arguments: object, tool: str | None = None, until: str = "") -> Ran:
        where = ("--bootstrap-server", f"{self._s.host}:{self._s.sasl_port}")
        return self._s.run(*arguments, "--command-config", self._config, tool=tool, at=where, until=until)

    def create(self, *arguments: object, life_ms: int = -1) -> tuple[str, str]:
        """Create a token and return its id and HMAC."""
        ran = self.run("--create --max-life-time-period", life_ms, *arguments)
        [(token_id, hmac)] = TOKEN.findall(ran.out)
        return token_id, hmac

    def tokens_of(self, *users: str, count: int) -> None:
        """Describe the users' tokens until there are ``count``: a Kafka broker learns of its controller's changes later."""
        owners = (f"--owner-principal User:{user}" for user in users)
        self.run("--describe", *owners, until=f"Total number of tokens : {count}")

    def renew(self, hmac: str, period_ms: int = -1) -> None:
        self.run("--renew --renew-time-period", period_ms, "--hmac", hmac)

    def expire(self, hmac: str, period_ms: int = -1) -> None:
        self.run("--expire --expiry-time-period", period_ms, "--hmac", hmac)


def by_password(s: ToolStory, user: str) -> Client:
    options = f'username="{user}" password="{PASSWORD}"'
    return Client(s, user, "plain.PlainLoginModule", "PLAIN", options)


def by_token(s: ToolStory, token_id: str, hmac: str, name: str = "token") -> Client:
    options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
    return Client(s, name, "scram.ScramLoginModule", "SCRAM-SHA-256", options)


@story(TOOL, profile=SASL)
def the_life_of_a_token(s: ToolStory) -> None:
    alice = by_password(s, "alice")
    alice.tokens_of("alice", count=0)
    _, hmac = alice.create()
    alice.tokens_of("alice", count=1)
    alice.renew(hmac)
    alice.renew(hmac, 60_000)
    alice.expire(hmac, 120_000)
    _, short = alice.create(life_ms=1)
    alice.tokens_of("alice", count=2)
    alice.renew(short)
    alice.expire(short, 1)
    alice.expire(short)
    alice.renew(UNKNOWN)
    alice.expire(UNKNOWN)
    alice.expire(hmac)
    alice.tokens_of("alice", count=0)
    alice.renew(hmac)


@story(TOOL, profile=SASL)
def tokens_of_others(s: ToolStory) -> None:
    """Of a token's owner, requester and renewers, only the owner and the renewers may renew it."""
    bob, carol, dave = (by_password(s, user) for user in ("bob", "carol", "dave"))
    _, hmac = bob.create("--owner-principal User:carol --renewer-principal User:dave")
    bob.tokens_of("bob", count=1)
    bob.tokens_of("dave", count=1)
    carol.tokens_of("carol", "dave", count=1)
    for client in (bob, carol, dave):
        client.renew(hmac)
    bob.expire(hmac)
    dave.expire(hmac)
    bob.run("--create --max-life-time-period", -1, "--renewer-principal Group:readers")
    bob.run("--create --max-life-time-period", -1, "--owner-principal Group:readers")


@story(TOOL, profile=SASL)
def logins(s: ToolStory) -> None:
    """The rights of a client that has logged in with a token. It cannot create further tokens."""
    erin = by_password(s, "erin")
    token_id, hmac = erin.create()
    erin.tokens_of("erin", count=1)
    orders = s.orders()
    holder = by_token(s, token_id, hmac)
    holder.run("--list --topic", orders, tool="kafka-topics")
    holder.run("--describe")
    holder.renew(hmac)
    holder.expire(hmac)
    holder.run("--create --max-life-time-period", -1)
    by_token(s, token_id, UNKNOWN, "wrong").run("--list --topic", orders, tool="kafka-topics")
    erin.expire(hmac)
    erin.tokens_of("erin", count=0)
    holder.run("--list --topic", orders, tool="kafka-topics")
