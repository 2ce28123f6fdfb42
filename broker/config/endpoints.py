"""Listeners: the addresses on which the broker listens, and the addresses that it advertises."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from protocol.slotted import slotted
from storage.config_def import ConfigError

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_CONTROLLER_NAME = "CONTROLLER"


@slotted(frozen=True)
class Endpoint:
    """One listener. An empty host means all addresses; with port 0 the operating system chooses a port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(texts: Iterable[str]) -> tuple[Endpoint, ...]:
    """Parse `NAME://host:port` entries, without their protocols. Names are converted to upper case, as in Kafka."""
    return tuple(_parse_endpoint(text) for text in texts)


def _parse_endpoint(text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not match[1]:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint")
    port = int(match[3])
    if not 0 <= port <= 65535:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint: the port must be from 0 to 65535")
    return Endpoint(match[1].upper(), match[2], port)


def shifted(text: str, steps: int) -> str:
    """Return the list of listeners with every port except 0 raised by ``steps``. Invalid entries are unchanged."""

    def move(entry: str) -> str:
        match = _ENDPOINT.fullmatch(entry.strip())
        if match is None or int(match[3]) == 0:
            return entry
        return f"{entry.strip()[: -len(match[3])]}{int(match[3]) + steps}"

    return ",".join(move(entry) for entry in text.split(","))


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse the value of listener.security.protocol.map: `NAME:PROTOCOL,…`."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = pair.rpartition(":")
        if not name or protocol.upper() not in PROTOCOLS:
            raise ConfigError.of(
                "listener.security.protocol.map",
                pair,
                f"expected NAME:PROTOCOL, with one of {', '.join(PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def with_protocols(endpoints: Sequence[Endpoint], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the endpoints with their security protocols. Raises `ConfigError` for a listener without a protocol."""
    secured = []
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            raise ConfigError(
                f"No security protocol defined for listener {endpoint.name}: "
                f"add {endpoint.name}:PLAINTEXT to listener.security.protocol.map"
            )
        secured.append(replace(endpoint, security_protocol=protocol))
    return tuple(secured)


def without_names(endpoints: Sequence[Endpoint], names: Iterable[str]) -> tuple[Endpoint, ...]:
    unwanted = {name.upper() for name in names}
    return tuple(endpoint for endpoint in endpoints if endpoint.name not in unwanted)


def check_distinct(endpoints: Sequence[Endpoint]) -> None:
    """Raise `ConfigError` if two listeners have the same name or the same port (except 0).

    An IPv6 address may have the same port as an IPv4 address or another IPv6 address.
    """
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(f"Each listener must have a different name, listeners: {_joined(endpoints)}")
    # Kafka allows an IPv4 and an IPv6 address to share a port, so the host is compared, too.
    places = [
        (endpoint.host if ":" in endpoint.host else "", endpoint.port)
        for endpoint in endpoints
        if endpoint.port
    ]
    if len(set(places)) != len(places):
        raise ConfigError(f"Each listener must have a different port, listeners: {_joined(endpoints)}")


def advertise(listeners: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the listeners to advertise if none are configured, with `localhost` for a wildcard address."""
    return tuple(replace(each, host="localhost") if each.host in _WILDCARDS else each for each in listeners)


def check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    names = {listener.name for listener in listeners}
    if not {endpoint.name for endpoint in advertised} <= names:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(endpoint.name for endpoint in advertised)}. "
            f"The valid options based on the current configuration are {','.join(sorted(names))}"
        )
    if any(endpoint.host in ("0.0.0.0", "::") for endpoint in advertised):
        raise ConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )


def listen_everywhere(advertised: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the listeners that the apache/kafka image derives if only advertised.listeners is set."""
    return tuple(replace(endpoint, host="0.0.0.0") for endpoint in advertised)


def _joined(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(map(str, endpoints))
