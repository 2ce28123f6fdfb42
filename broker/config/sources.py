"""The sources of settings: --default, a properties file, the environment, the command line.

Each source overrides the sources before it.
"""

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path

from broker.config.definitions import OWN_PREFIX, broker_configs, is_known, nearest
from protocol.slotted import slotted
from storage.config_def import ConfigError


class Rank(IntEnum):
    DEFAULT = 0
    START = 1
    """``--default``, by which a container image passes its own defaults. The user's sources override them."""
    FILE = 2
    ENVIRONMENT = 3
    COMMAND_LINE = 4
    ONE_NODE = 5


@slotted(frozen=True)
class Setting:
    """The value of a setting as text, with its source."""

    name: str
    raw: str
    rank: Rank
    where: str  # for messages: "the variable KAFKA_NUM_PARTITIONS"


# Variables of the images, of their start scripts and of Kubernetes that are not broker settings.
_NOT_SETTINGS = re.compile(
    r"KAFKA_("
    r"VERSION|HOME|OPTS|DEBUG|HEAP_OPTS|JMX_\w+|GC_LOG_\w+|JVM_PERFORMANCE_OPTS|\w*LOG4J\w*|CLASSPATH"
    r"|SSL_(KEYSTORE|TRUSTSTORE|KEY)_(FILENAME|CREDENTIALS)"
    r"|BOOTSTRAP_SERVERS?|BROKERS?|CLUSTER_ID|PORT|PORT_\d+_\w+|SERVICE_(HOST|PORT)\w*|REST_\w+"
    # Variables that start scripts for older images and Confluent's set for every broker.
    r"|ZOOKEEPER_\w+|CONFLUENT_\w+|CREATE_TOPICS\w*"
    r")"
    # Variables of Kubernetes for a service that is called odradek or odradek-control.
    r"|ODRADEK_(PORT|(\w+_)?(PORT_\d+_\w+|SERVICE_(HOST|PORT)\w*))",
    re.ASCII,
)


# Variables that only the `odradek` commands, the Spark integration or its sink read. `protocol` reads ODRADEK_PURE (without
# the compiled core) before there are settings. A test compares these names with the variables that `odradek` reads.
OF_OTHERS = frozenset(
    {
        "ODRADEK_CONTROL",
        "ODRADEK_CONTROL_CA",
        "ODRADEK_CACHE",
        "ODRADEK_DEADLINE_FACTOR",
        "ODRADEK_IVY_SETTINGS",
        "ODRADEK_PROCESS",
        "ODRADEK_PURE",
        "ODRADEK_SINK_KILL",
    }
)
# Variables of a start that are not settings: `server.options` reads them.
OF_THE_START = frozenset(
    {
        "ODRADEK_CONTROL_HOST",
        "ODRADEK_CONTROL_PORT",
        "ODRADEK_FAULTS",
        "ODRADEK_HEALTH_SOCKET",
        "ODRADEK_SASL",
        "ODRADEK_SEED",
        "ODRADEK_TOPICS",
    }
)
# Settings that restrict access: if their name is misspelt, access stays open. An unknown variable that begins like one of
# them, or is most similar to one, is therefore an error.
_CLOSES = re.compile(r"(.+\.)?(allowed|authorizer|sasl|security|ssl|tls|token)\b")
_BEGINS_LIKE = re.compile(r"odradek\.(authorizer|control|sasl|security|ssl|tls|token)")
# For a Service named `kafka`, `odradek-control` or similar, Kubernetes sets these variables in each pod of its namespace. If
# X_SERVICE_HOST is set they do not configure the broker. X_PORT is a port set by the user, or the URL of the Service.
_SERVICE_HOST = re.compile(r"((?:KAFKA|ODRADEK)\w*)_SERVICE_HOST", re.ASCII)
_OF_SERVICE = r"{}_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
_OF_NODE = re.compile(r"odradek\.node\.([0-9]{1,4})\.(.+)", re.ASCII)


def without_services(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment without the variables that Kubernetes sets for its Services."""
    services = [match[1] for match in map(_SERVICE_HOST.fullmatch, environ) if match]
    if not services:
        return environ
    of_services = re.compile("|".join(map(_OF_SERVICE.format, services)), re.ASCII)
    ports = {f"{service}_PORT" for service in services}
    return {
        name: value
        for name, value in environ.items()
        if not of_services.fullmatch(name) and not (name in ports and "://" in value)
    }


def given_settings(
    properties_file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    defaults: Mapping[str, str],
) -> list[Setting]:
    """Read the settings of all sources. They are in the order of precedence, lowest first, beginning with ``defaults``."""
    given = [
        *(from_file(properties_file) if properties_file else ()),
        *from_environment(environ),
        *from_command_line(overrides),
    ]
    if any(setting.name == "log.dir" for setting in given):
        # log.dirs overrides log.dir, so a default of log.dirs would override the user's log.dir.
        defaults = {name: raw for name, raw in defaults.items() if name != "log.dirs"}
    return [
        *(Setting(name, raw, Rank.START, "the option --default") for name, raw in defaults.items()),
        *given,
    ]


def from_file(path: Path) -> list[Setting]:
    """Read a `server.properties`, in the syntax of Java's Properties (Latin-1, escapes, continued lines)."""
    import javaproperties  # imported only if there is such a file

    try:
        with path.open("rb") as file:
            properties = javaproperties.load(file)
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror}") from error
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error}") from error
    return [Setting(name, raw, Rank.FILE, f"the file {path}") for name, raw in properties.items()]


def from_environment(environ: Mapping[str, str]) -> list[Setting]:
    """Read the settings in environment variables: KAFKA_LOG_DIRS is log.dirs, as in the apache/kafka image.

    ODRADEK_LOG_FORMAT is odradek.log.format. Variables of other images are in `image_variables`.
    """
    return list(_from_environment(environ))


def _from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    environ = without_services(environ)
    # The apache/kafka image uses CLUSTER_ID, bitnami's KAFKA_CLUSTER_ID.
    for variable in ("KAFKA_CLUSTER_ID", "CLUSTER_ID"):
        if environ.get(variable):
            yield _variable(f"{OWN_PREFIX}cluster.id", environ, variable)
    for variable in sorted(environ):
        if variable in OF_OTHERS or variable in OF_THE_START or _NOT_SETTINGS.fullmatch(variable):
            continue
        if variable.startswith("ODRADEK_"):
            yield _variable(property_name(variable), environ, variable)
        elif variable.startswith("KAFKA_CFG_"):
            yield from _of_bitnami(environ, variable)
        elif variable.startswith("KAFKA_"):
            yield _variable(property_name(variable.removeprefix("KAFKA_")), environ, variable)
    if "SSL://" in environ.get("KAFKA_ADVERTISED_LISTENERS", ""):
        from broker.config.image_variables import secrets_of

        for secret in secrets_of(environ):
            yield Setting(secret.name, secret.value, Rank.ENVIRONMENT, f"the variable {secret.variable}")


def _of_bitnami(environ: Mapping[str, str], variable: str) -> Iterator[Setting]:
    from broker.config.image_variables import bitnami_name

    if environ[variable]:  # bitnami's script ignores empty variables
        yield _variable(bitnami_name(variable), environ, variable)


def _variable(name: str, environ: Mapping[str, str], variable: str) -> Setting:
    return Setting(name, environ[variable], Rank.ENVIRONMENT, f"the variable {variable}")


def property_name(variable: str) -> str:
    """Return the setting of a variable: one underscore is a dot, two are an underscore, three are a dash."""
    marks = {1: ".", 2: "_", 3: "-"}
    return re.sub("_{1,3}", lambda match: marks[len(match[0])], variable.lower())


def variable_name(name: str) -> str:
    """Return the variable of a setting: the reverse of `property_name`."""
    marks = {".": "_", "_": "__", "-": "___"}
    text = "".join(marks.get(letter, letter.upper()) for letter in name)
    return text if name.startswith(OWN_PREFIX) else f"KAFKA_{text}"


def from_command_line(overrides: Mapping[str, str]) -> list[Setting]:
    return [Setting(name, raw, Rank.COMMAND_LINE, "the command line") for name, raw in overrides.items()]


def strongest(settings: list[Setting]) -> dict[str, Setting]:
    """Return name -> the setting of the highest rank; if a source sets a name several times, its last setting counts."""
    chosen: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda each: each.rank):
        chosen[setting.name] = setting
    return chosen


def for_node(settings: list[Setting], number: int) -> list[Setting]:
    """Return the settings of one node of a cluster: ``odradek.node.2.broker.rack`` is ``broker.rack`` of the second node."""
    chosen = []
    for setting in settings:
        match = _OF_NODE.fullmatch(setting.name)
        if match is None:
            chosen.append(setting)
        elif int(match[1]) == number:
            where = f"{setting.name} of {setting.where}"
            chosen.append(Setting(match[2], setting.raw, Rank.ONE_NODE, where))
    return chosen


def check_node_numbers(settings: list[Setting], nodes: int) -> None:
    """Raise ConfigError for a setting of a node that does not exist."""
    for setting in settings:
        match = _OF_NODE.fullmatch(setting.name)
        if match is not None and not 1 <= int(match[1]) <= nodes:
            raise ConfigError(
                f"{setting.name} (from {setting.where}): there is no node {match[1]}, nodes are 1 to {nodes}"
            )


def unknown(settings: Mapping[str, Setting]) -> list[str]:
    """Return one warning for each unknown setting of a file or the environment, which may be for another program or release.

    Raises ConfigError for an unknown setting on the command line, for an unknown setting in a file if its name begins
    with ``odradek.``, and for an ``ODRADEK_`` variable that looks like a security setting.
    """
    warnings = []
    for name, setting in settings.items():
        if is_known(name):
            continue
        by_variable = setting.rank is Rank.ENVIRONMENT
        near = _nearest(name, by_variable)
        hint = f"; did you mean {variable_name(near) if by_variable else near}?" if near else ""
        if by_variable and setting.raw and _closes(name, near):
            raise ConfigError(
                f"Unknown property {name} (from {setting.where}){hint or '.'} The broker does not start, because the name "
                "looks like a security setting"
            )
        is_ours = name.startswith(OWN_PREFIX) and not by_variable
        if is_ours or setting.rank is Rank.COMMAND_LINE:
            raise ConfigError(f"Unknown property {name} (from {setting.where}){hint}")
        warnings.append(f"unknown property {name} (from {setting.where}) has no effect{hint}")
    return warnings


def _closes(name: str, near: str | None) -> bool:
    """Whether an unknown ``ODRADEK_`` variable probably is a misspelt setting that restricts access."""
    return bool(_BEGINS_LIKE.match(name) or (name.startswith(OWN_PREFIX) and near and _CLOSES.match(near)))


def _nearest(name: str, by_variable: bool) -> str | None:
    """Return the most similar known setting of Odradek or Kafka; None if no setting is similar."""
    known = {each.removeprefix(OWN_PREFIX): each for each in _known(by_variable)}
    found = nearest(name.removeprefix(OWN_PREFIX), known)
    return None if found is None else known[found]


def _known(by_variable: bool) -> Iterator[str]:
    yield from (known for known, key in broker_configs().items() if not key.internal)
    if by_variable:
        yield from map(property_name, OF_THE_START)
