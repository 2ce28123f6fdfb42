"""Our broker, in this process. A client says in the client id of its first request who it is; no SASL is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker.net.calls import Call
from tests.broker.security.refusals.principals import ALLOW, ANONYMOUS, DENY, PREFIXED, Acl
from tests.broker.security.refusals.settings import COMMON
from tests.broker.security.refusals.sides import Side
from tests.support import raw
from tests.support.in_process import InProcess


class Introduced:
    """An interceptor that gives each request the principal that its connection has begun with."""

    def __init__(self) -> None:
        self._principals: dict[int, str] = {}

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        said, connection = call.context.client_id or "", call.context.connection_id
        if said.startswith("User:"):
            self._principals[connection] = said
        call.context.principal = self._principals.get(connection, f"User:{ANONYMOUS}")
        return True

    def answering(self, call: Call) -> bool:
        return True


class OurSide(Side):
    def __init__(self, broker: InProcess) -> None:
        super().__init__()
        self._broker = broker
        broker.call(lambda: broker.cluster.calls.add(Introduced(), first=True))

    def connect(self, user: str) -> raw.Wire:
        wire = raw.Wire("127.0.0.1", self._broker.cluster.first.listeners[0].port)
        if user != ANONYMOUS:
            wire.send_frame(raw.encode_request("api_versions", 0, {}, 1, f"User:{user}"))
            wire.receive_frame()
        return wire


_IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}


class FakeAuthorizer:
    def __init__(self) -> None:
        self.acls: dict[str, list[Acl]] = {}

    def authorize(self, principal: str, host: str, operation: str, kind: str, name: str) -> bool:
        if principal == "User:admin":
            return True
        mine = [
            acl
            for acl in self.acls.get(principal, ())
            if acl.resource_type == kind
            and (acl.name in ("*", name) or (acl.pattern == PREFIXED and name.startswith(acl.name)))
        ]
        if any(acl.permission == DENY and acl.operation in (operation, "ALL") for acl in mine):
            return False
        allowing = {operation, "ALL"} | _IMPLIED.get(operation, set())
        return any(acl.permission == ALLOW and acl.operation in allowing for acl in mine)

    def authorize_by_resource_type(self, principal: str, host: str, operation: str, kind: str) -> bool:
        if principal == "User:admin":
            return True
        mine = [
            acl
            for acl in self.acls.get(principal, ())
            if acl.resource_type == kind and acl.operation in (operation, "ALL")
        ]
        if any(acl.permission == DENY and acl.name == "*" for acl in mine):
            return False
        denied = [acl for acl in mine if acl.permission == DENY]
        return any(
            acl.permission == ALLOW
            and not any(
                (no.pattern == PREFIXED and acl.name.startswith(no.name)) or no.name == acl.name
                for no in denied
            )
            for acl in mine
        )


class FakeSide(OurSide):
    def __init__(self, broker: InProcess) -> None:
        super().__init__(broker)
        self.authorizer = FakeAuthorizer()
        broker.cluster.first.node.authorizer = self.authorizer

    def grant(self, user: str, acls: Sequence[Acl]) -> None:
        self.authorizer.acls.setdefault(f"User:{user}", []).extend(acls)

    def revoke(self, user: str, acls: Sequence[Acl]) -> None:
        for acl in acls:
            self.authorizer.acls[f"User:{user}"].remove(acl)


@contextmanager
def ours(folder: Path) -> Iterator[OurSide]:
    with InProcess(folder, settings=COMMON) as broker:
        side = FakeSide(broker)
        try:
            yield side
        finally:
            side.close()
