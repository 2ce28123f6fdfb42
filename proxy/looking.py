"""The objects that the control port of a proxy can access: fault rules on requests, the trace, and the views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Domain
from lab.control.access import ControlConfigError
from lab.control.listener import ControlListener, tls_of
from lab.control.ports import Looking
from lab.faults import ActiveRule, FaultError, Faults, Rule, parse_rule
from lab.faults.fields import SASL_AUTHENTICATE
from lab.faults.rules import Place
from lab.metrics.metrics import Metrics
from lab.metrics.of_views import ViewMetrics
from lab.metrics.request_metrics import RequestMetrics
from lab.trace.trace import Trace
from protocol.slotted import slotted
from proxy.admin import Admin
from proxy.asking import NoAnswer
from proxy.transactions import UpstreamTransactions
from proxy.views import ProxyViews

if TYPE_CHECKING:
    from broker.config.settings import ControlPort
    from proxy.proxy import Proxy

ONLY_CALLS: Final = "a proxy sees only requests and responses"
NAMES_PAUSE_MS: Final = 5_000
"""Minimum interval between two requests for topic names, which are sent when a name is not known."""


class ProxyFaults(Faults):
    """The rules of a proxy, which apply to requests and responses only, not to steps inside the upstream's nodes."""

    def add(self, rule: Rule) -> ActiveRule:
        if rule.place is not Place.CALL:
            what = rule.on or rule.action.do
            raise FaultError(f"{what}: {ONLY_CALLS}, not what happens inside the nodes")
        if rule.action.do in ("kill", "crash"):
            raise FaultError(f"{rule.action.do}: {ONLY_CALLS}; it cannot kill a node of the upstream")
        if rule.match.principal is not None:
            raise FaultError("principal: the nodes of the upstream know who has logged in, a proxy does not")
        if rule.match.mechanism is not None and SASL_AUTHENTICATE in rule.api_keys:
            raise FaultError("mechanism: a proxy sees the mechanism only in SaslHandshake")
        return super().add(rule)


@slotted(frozen=True, kw_only=True)
class ProxyLooking(Looking):
    """The objects that the control port of one proxy can access."""

    views: ProxyViews

    async def node_states(self) -> Mapping[str, str]:
        return {str(node_id): state for node_id, state in (await self.views.node_states()).items()}

    async def upstream(self) -> dict[str, Any]:
        return await self.views.upstream()

    def refusal(self, what: str) -> str:
        return f"{what} is not for a proxy: it sees requests and responses, and does not reach into the nodes behind it"


class _Names:
    """Callback for a topic id whose name is not known: requests the upstream's topic names.

    Requests are at least ``NAMES_PAUSE_MS`` apart.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._asked_ms: int | None = None

    def __call__(self) -> None:
        now_ms = self._proxy.clock.now_ms(Domain.REQUESTS)
        if self._asked_ms is not None and now_ms - self._asked_ms < NAMES_PAUSE_MS:
            return
        self._asked_ms = now_ms
        self._proxy.run(self._ask())

    async def _ask(self) -> None:
        try:
            await self._proxy.ask_for_topics(None)
        except NoAnswer:
            return  # the next unknown id starts another request


def looking_of(proxy: Proxy) -> ProxyLooking:
    """Create the `ProxyLooking` of a proxy that has started, and add the fault rules of the command line.

    Raises ``ControlConfigError`` for a rule that a proxy cannot execute.
    """
    trace = Trace(proxy.calls, proxy.clock, names=proxy.topics.name)
    proxy.topics.on_unknown = _Names(proxy)
    admin = Admin(proxy)
    views = ProxyViews(admin, trace)
    faults = ProxyFaults(
        proxy.injection,
        proxy.calls,
        proxy.clock,
        running=proxy.nodes.get,
        nodes=lambda: {node_id: [node.listener.name] for node_id, node in proxy.nodes.items()},
    )
    for text in proxy.settings.faults:
        try:
            faults.add(parse_rule(text))
        except FaultError as error:
            raise ControlConfigError(f"--fault {text}: {error}") from error
    return ProxyLooking(
        clock=proxy.clock,
        faults=faults,
        trace=trace,
        views=views,
        metrics=Metrics(RequestMetrics(proxy.calls, proxy.topics.name), ViewMetrics(views)),
        transactions=UpstreamTransactions(admin, trace),
    )


async def open_control(proxy: Proxy, looking: ProxyLooking, where: ControlPort) -> ControlListener:
    """Open the control port of a proxy. Raises ``ControlConfigError`` if it cannot be opened."""
    settings = proxy.settings
    listener = ControlListener(
        lambda: looking,
        host=where.host,
        port=where.port,
        token=settings.control_token,
        stage_token=settings.control_stage_token,
        look_token=settings.control_look_token,
        allowed_hosts=settings.control_allowed_hosts,
        tls=tls_of(settings.control_tls_certificate, settings.control_tls_key),
    )
    await listener.start()
    return listener
