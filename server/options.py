"""The command line of the broker, for both `python -m server` and `odradek serve`.

A valid command line of common long options (``--port 9092``) is parsed without click, whose import takes 10 ms. click parses
all other command lines, and all invalid ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config import DEFAULT_HOST, DEFAULT_PORT, BrokerConfig, ConfigError, Endpoint, node_configs
from broker.config.definitions import EXPORTER_NONE, PREVIEWS
from broker.config.endpoints import parse_endpoints
from broker.config.settings import ControlPort, Settings, TopicSpec
from broker.config.sources import without_services
from lab.control_options import (
    CONTROL_HOST_VARIABLE,
    CONTROL_PORT_VARIABLE,
    FAULTS_VARIABLE,
    LOG_FORMATS,
    LOG_LEVELS,
    PORT_MAX,
    bad_setting,
    control_port,
    port_of,
    rules_in,
    usage_error,
)
from storage.config import LogConfig

if TYPE_CHECKING:
    import click

    from broker.config.sasl_users import User
    from broker.config.settings import SeedRecord

TOPICS_VARIABLE: Final = "ODRADEK_TOPICS"
CREATE_TOPICS_VARIABLE: Final = "KAFKA_CREATE_TOPICS"
SASL_VARIABLE: Final = "ODRADEK_SASL"
SEED_VARIABLE: Final = "ODRADEK_SEED"
_SHORT_MAX: Final = 32_767


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a command line. Raises click.ClickException for an invalid one."""
    options = plain_options(argv)
    if options is not None:
        try:
            return _settings(options, os.environ if environ is None else environ)
        except Exception:
            # click parses the command line again below, and shows the error with the usage.
            options = None
    found: list[Settings] = []
    command(found.append, environ).main(list(argv), prog_name="odradek serve", standalone_mode=False)
    if not found:  # --help and --version only print
        import click

        raise click.exceptions.Exit(0)
    return found[0]


def plain_options(argv: Sequence[str]) -> dict[str, object] | None:
    """The options, as click would pass them to the command; None if only click can parse this command line."""
    options: dict[str, object] = {**_PLAIN_DEFAULTS}
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--ends-with-stdin" and not equals:
            options["ends_with_stdin"] = True
            continue
        name = _PLAIN_NAMES.get(option)
        if not equals:
            value = next(words, "")
        if name is None or not value or value.startswith("-"):
            return None
        if name in _REPEATED:
            if name == "previews" and value not in PREVIEWS:
                return None
            options[name] = (*_texts(options[name]), value)
            continue
        converted = _plain_value(name, value)
        if converted is None:
            return None
        options[name] = converted
    return options


def _plain_value(name: str, text: str) -> object:
    """The value of an option; None if click must parse it."""
    if name in ("port", "control_port", "nodes"):
        if not (text.isascii() and text.isdecimal()) or len(text) > 5:
            return None
        number = int(text)
        return number if (number >= 1 if name == "nodes" else number <= PORT_MAX) else None
    if name == "data_dir":
        there = not os.path.lexists(text) or (os.path.isdir(text) and os.access(text, os.R_OK))
        return Path(text) if there else None
    if name in ("log_format", "log_level"):
        return text if text in (LOG_FORMATS if name == "log_format" else LOG_LEVELS) else None
    return text


_PLAIN_NAMES: Final = {
    "--host": "host",
    "--port": "port",
    "--data-dir": "data_dir",
    "--set": "assignments",
    "--default": "defaults",
    "--topic": "topics",
    "--feature": "features",
    "--preview": "previews",
    "--nodes": "nodes",
    "--control-port": "control_port",
    "--control-host": "control_host",
    "--log-format": "log_format",
    "--log-level": "log_level",
    "--seed": "seed",
}
_REPEATED: Final = ("assignments", "defaults", "topics", "features", "previews")
_SECURITY_OPTIONS: Final = ("tls", "tls_directory", "sasl")
_PLAIN_DEFAULTS: Final[Mapping[str, object]] = {
    **dict.fromkeys(_PLAIN_NAMES.values()),
    **dict.fromkeys(_REPEATED, ()),
    "config": None,
    "nodes": 1,
    "ends_with_stdin": False,
    **dict(zip(_SECURITY_OPTIONS, (False, None, ()), strict=True)),
}


def command(run: Callable[[Settings], None], environ: Mapping[str, str] | None = None) -> click.Command:
    """The click command that parses the options and calls `run` with the settings."""
    import click

    from server.click_options import options as all_options

    def callback(**options: object) -> None:
        run(_settings(options, os.environ if environ is None else environ))

    return click.Command(
        "serve",
        callback=callback,
        params=all_options(),
        help=(
            "Start a Kafka broker and serve until SIGTERM or SIGINT. Settings come from --config, from "
            "KAFKA_* variables as in the apache/kafka image, and from these options; each source "
            "overrides those before it."
        ),
        epilog="docs/configuration.md lists all settings.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _settings(options: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    users: tuple[User, ...] = ()
    authority: Path | None = None
    number, file = int(str(options["nodes"])), _path(options["config"])
    environ = without_services(environ)
    try:
        defaults = _assigned(options["defaults"], "--default")
        host = _default_host(defaults)
        overrides = _overrides(options, environ, host)
        if _is_secured(options, environ):
            from broker.security.command_line import secure

            overrides, preset = secure(
                options, environ, overrides, properties_file=file, nodes=number, defaults=defaults
            )
            users, authority = preset.users, preset.authority
        nodes, warnings = node_configs(file, environ, overrides, number, defaults)
        _check_exporter(nodes[0])
        _check_quorum(nodes)
        _check_authorizers(nodes)
        topics = [parse_topic(text, nodes[0]) for text in _texts(options["topics"])]
        _check_different(topics, "--topic {} is given more than once.")
        topics += _without(topics, _topics_of_variables(environ, nodes))
        seed = _seed(options["seed"], environ)
        topics += _seed_topics(seed, topics, nodes[0])
        if counts := _counts_of_internal_topics(topics):
            nodes, warnings = node_configs(file, environ, {**overrides, **counts}, number, defaults)
    except ConfigError as error:
        raise bad_setting(str(error)) from None
    if nodes[0].log_dir is None and os.getpid() == 1:
        warnings.append(
            "records are lost when this container is removed: neither log.dirs nor --data-dir names a directory"
        )
    return Settings(
        nodes,
        tuple(topics),
        parse_features(_texts(options["features"])),
        tuple(warnings),
        _control(options, environ, nodes[0], host),
        _faults(environ.get(FAULTS_VARIABLE, "")),
        bool(options["ends_with_stdin"]),
        users,
        authority,
        seed,
    )


def _seed(file: object, environ: Mapping[str, str]) -> tuple[SeedRecord, ...]:
    source, name = ("--seed", file) if file is not None else (SEED_VARIABLE, environ.get(SEED_VARIABLE))
    if not name:
        return ()
    from broker.config.seed import read_seed

    return read_seed(Path(str(name)), source)


def _seed_topics(
    seed: Sequence[SeedRecord], topics: Sequence[TopicSpec], config: BrokerConfig
) -> list[TopicSpec]:
    if not seed:
        return []
    from broker.config.seed import seed_topics

    return seed_topics(seed, topics, config.num_partitions)


def _is_secured(options: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Whether an option requires a login or TLS. `--set` does not count."""
    return any(options[name] for name in _SECURITY_OPTIONS) or bool(environ.get(SASL_VARIABLE))


def _check_exporter(config: BrokerConfig) -> None:
    if config.client_telemetry_exporter == EXPORTER_NONE:
        return
    from broker.client_metrics.exporting import MissingPackage, check_exporter

    try:
        check_exporter(config)
    except MissingPackage as error:
        raise bad_setting(str(error)) from None


def _check_quorum(nodes: Sequence[BrokerConfig]) -> None:
    if not any(nodes[0].get(f"controller.quorum.{each}") for each in ("voters", "bootstrap.servers")):
        return
    from broker.config.quorum import check_quorum

    endpoints = [each for node in nodes for each in (*node.listeners, *node.advertised_listeners)]
    hosts = {os.uname().nodename, *(each.host for each in endpoints)}
    check_quorum(nodes[0].values, [node.node_id for node in nodes], hosts)


def _check_authorizers(nodes: Sequence[BrokerConfig]) -> None:
    for config in nodes:
        if config.authorizer_class_name:
            from broker.security.authorizer.settings import authorizer_of

            authorizer_of(config.values)


def _topics_of_variables(environ: Mapping[str, str], nodes: Sequence[BrokerConfig]) -> list[TopicSpec]:
    topics: list[TopicSpec] = []
    for variable, parse_entries in ((TOPICS_VARIABLE, _own_topics), (CREATE_TOPICS_VARIABLE, _create_topics)):
        found = list(parse_entries(environ.get(variable, ""), nodes))
        _check_different(found, f"{variable}: the topic {{}} is given more than once.")
        topics += _without(topics, found)
    return topics


def _own_topics(text: str, nodes: Sequence[BrokerConfig]) -> Iterator[TopicSpec]:
    """Parse `orders:4,payments`. If topics have settings, the topics are separated by semicolons or newlines."""
    for line in re.split(r"[;\n]", text):
        for entry in [line] if "=" in line else line.split(","):
            if entry := entry.strip():
                yield parse_topic(entry, nodes[0], TOPICS_VARIABLE)


def _create_topics(text: str, nodes: Sequence[BrokerConfig]) -> Iterator[TopicSpec]:
    """Parse `orders:4:1,payments:1:1:compact`, the format of the wurstmeister/kafka image."""
    from broker.metadata.internal_topics import default_partitions

    for entry in re.split(r"[,\s]+", text):
        if not entry:
            continue
        parts = entry.split(":")
        name, partitions, replicas, policy = (parts + [""] * 3)[:4]
        if len(parts) > 4 or not (replicas or "1").isdecimal():
            expected = "NAME:PARTITIONS:REPLICAS[:CLEANUP.POLICY]"
            raise usage_error(f"{CREATE_TOPICS_VARIABLE} {entry}: expected {expected}.")
        if int(replicas or 1) > len(nodes):
            raise usage_error(
                f"{CREATE_TOPICS_VARIABLE} {entry}: {replicas} replicas need {replicas} nodes, and there "
                f"{'is' if len(nodes) == 1 else 'are'} {len(nodes)}; --nodes {replicas} starts them."
            )
        whole = f"{name}:{partitions or default_partitions(name, nodes[0])}"
        if policy:
            whole += f":cleanup.policy={policy}"
        topic = parse_topic(whole, nodes[0], CREATE_TOPICS_VARIABLE)
        yield replace(topic, replication_factor=int(replicas or -1))


def _counts_of_internal_topics(topics: Sequence[TopicSpec]) -> dict[str, str]:
    """The broker settings for the partition counts of internal topics that the command line creates, such as
    ``offsets.topic.num.partitions``: coordinators need these counts to find the partition of a group.
    """
    if not topics:
        return {}
    from broker.metadata.internal_topics import PARTITIONS_SETTING

    return {
        PARTITIONS_SETTING[topic.name]: str(topic.partitions)
        for topic in topics
        if topic.name in PARTITIONS_SETTING
    }


def _without(taken: Sequence[TopicSpec], found: Sequence[TopicSpec]) -> list[TopicSpec]:
    names = {topic.name for topic in taken}
    return [topic for topic in found if topic.name not in names]


def _faults(text: str) -> tuple[str, ...]:
    """The fault rules in an environment variable, validated as far as possible without a broker."""
    rules = rules_in(text)
    if rules:
        from lab.faults import FaultError, parse_rule  # imported only for a start with rules

        for rule in rules:
            try:
                parse_rule(rule)
            except FaultError as error:
                raise usage_error(f"{FAULTS_VARIABLE} {rule}: {error}.") from None
    return rules


def _control(
    options: Mapping[str, object], environ: Mapping[str, str], config: BrokerConfig, default_host: str
) -> ControlPort | None:
    port, host = options["control_port"], options["control_host"]
    if port is None:
        port = port_of(environ.get(CONTROL_PORT_VARIABLE, ""))
    host_is_from = "--control-host" if host is not None else CONTROL_HOST_VARIABLE
    if host is None:
        host = environ.get(CONTROL_HOST_VARIABLE) or None
    if port is None:
        if host is not None:
            raise usage_error(
                f"{host_is_from}: there is no control port without --control-port or {CONTROL_PORT_VARIABLE}."
            )
        return None
    return control_port(
        default_host if host is None else str(host),
        int(str(port)),
        config.control_token,
        config.control_allowed_hosts,
        stage_token=config.get("odradek.control.token.stage"),
        look_token=config.get("odradek.control.token.look"),
    )


def _assigned(assignments: object, option: str) -> dict[str, str]:
    assigned: dict[str, str] = {}
    for assignment in _texts(assignments):
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            # The part behind a name may be a password, whatever the separator is.
            shown = re.split(r"[^\w.-]", assignment, maxsplit=1)[0]
            raise usage_error(f"{option} {shown}: expected KEY=VALUE.")
        assigned[name.strip()] = value
    return assigned


def _default_host(defaults: Mapping[str, str]) -> str:
    """Default host of listeners and control port: that of the default listeners."""
    listeners = defaults.get("listeners", "")
    return parse_endpoints([listeners.partition(",")[0]])[0].host if listeners else DEFAULT_HOST


def _overrides(
    options: Mapping[str, object], environ: Mapping[str, str], default_host: str
) -> dict[str, str]:
    """The options as settings. An option and --set for the same setting are an error, since one would be ignored."""
    overrides = _assigned(options["assignments"], "--set")
    host, port = options["host"], options["port"]
    if host is not None or port is not None:
        endpoint = Endpoint(
            _protocol(options, environ),
            str(default_host if host is None else host),
            DEFAULT_PORT if port is None else int(str(port)),
        )
        _check_not_set_twice(overrides, "--host and --port set", "listeners")
        overrides["listeners"] = str(endpoint)
    if "," in str(options["data_dir"]):
        reason = "Kafka's log.dirs separates directories by commas; give one without a comma."
        raise usage_error(f"--data-dir {options['data_dir']}: {reason}")
    for option, *names in (
        ("data_dir", "log.dirs", "log.dir"),
        ("log_format", "odradek.log.format"),
        ("log_level", "odradek.log.level"),
    ):
        if options[option] is not None:
            _check_not_set_twice(overrides, f"--{option.replace('_', '-')} sets", *names)
            overrides[names[0]] = str(options[option])
    if previews := _texts(options["previews"]):
        _check_not_set_twice(overrides, "--preview sets", "odradek.preview")
        overrides["odradek.preview"] = ",".join(dict.fromkeys(previews))
    return overrides


def _protocol(options: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Security protocol of the listener of --host and --port, which also is the listener's name."""
    if not _is_secured(options, environ):
        return "PLAINTEXT"
    from broker.security.command_line import protocol_of

    return protocol_of(options, environ)


def _check_not_set_twice(overrides: Mapping[str, str], by: str, *names: str) -> None:
    for name in names:
        if name in overrides:
            raise usage_error(f"--set {name}: {by} it, too. Give one of them.")


def parse_topic(text: str, config: BrokerConfig, where: str = "--topic") -> TopicSpec:
    """Parse `orders` or `orders:4:cleanup.policy=compact,segment.ms=60000`.

    A comma that is not followed by `key=` belongs to the value.
    """
    # Imported here, because the package contains much that only a start needs, not a help text.
    from broker.metadata.internal_topics import default_partitions
    from broker.metadata.topics import invalid_topic_name

    name, colon, rest = text.partition(":")
    count, _, configs_text = rest.partition(":")
    count = count if colon else str(default_partitions(name, config))
    if invalid_topic_name(name) is not None:
        raise usage_error(f"{where} {text}: {name!r} is not a name that Kafka allows for a topic.")
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= 100_000):
        raise usage_error(f"{where} {text}: expected NAME[:PARTITIONS[:key=value,...]].")
    configs: dict[str, str] = {}
    key = ""
    for part in filter(None, configs_text.split(",")):
        before, equals, value = part.partition("=")
        if equals:
            key, configs[before] = before, value
        elif key:
            configs[key] += f",{part}"
        else:
            more = (
                " The setting default.replication.factor sets the number of replicas."
                if part.isdecimal()
                else ""
            )
            raise usage_error(f"{where} {text}: expected key=value, not {part!r}.{more}")
    try:
        LogConfig.from_properties(configs, config.log_defaults)
    except ConfigError as error:
        raise ConfigError(f"{where} {text}: {error}") from None
    return TopicSpec(name, int(count), configs)


def _check_different(topics: Sequence[TopicSpec], message: str) -> None:
    names = [topic.name for topic in topics]
    for name in names:
        if names.count(name) > 1:
            raise usage_error(message.format(name))


def parse_features(texts: Sequence[str]) -> dict[str, int]:
    """Parse `--feature transaction.version=1` and others. The errors are those of `kafka-storage format`."""
    if not texts:
        return {}
    from broker.metadata.features import METADATA_VERSION, UnsupportedFeature, check_levels

    levels: dict[str, int] = {}
    for text in texts:
        name, equals, level_text = map(str.strip, text.partition("="))
        wrong = f"--feature {text}: Can't parse feature=level string {text}"
        if not equals:
            raise usage_error(f"{wrong}: equals sign not found.")
        if not re.fullmatch(r"[+-]?[0-9]{1,5}", level_text, re.ASCII) or abs(int(level_text)) > _SHORT_MAX:
            raise usage_error(f"{wrong}: unable to parse {level_text} as a short.")
        if name == METADATA_VERSION:
            raise usage_error(
                f"--feature {text}: odradek export --metadata-version lowers the level of a copy."
            )
        try:
            check_levels({name: int(level_text)})
        except UnsupportedFeature as error:
            raise usage_error(f"--feature {text}: {error}") from None
        levels[name] = int(level_text)
    return levels


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _path(value: object) -> Path | None:
    return value if isinstance(value, Path) else None
