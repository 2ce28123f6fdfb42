"""Generates the page of settings from the tables that the broker reads.

python -m broker.config.docs > docs/configuration.md
"""

import sys
from collections.abc import Iterable, Iterator

from broker.config.definitions import (
    AUTHORIZER_CONFIGS,
    EMULATOR_DEFAULTS,
    OWN_CONFIGS,
    RUN_TIME_CONFIGS,
    BrokerConfigKey,
    documentation_of,
    kafka_configs,
)
from broker.config.group_configs import group_configs
from broker.config.kafka_table import RELEASE
from broker.config.metrics_configs import METRICS_CONFIGS
from storage.config import TOPIC_CONFIGS, TopicConfigKey
from storage.config_def import ConfigKey, to_text

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m broker.config.docs`; a test compares. -->

Settings have Kafka's own names. They come from three sources; each overrides those before it:

1. a file: `odradek serve --config server.properties`, in the syntax of Java's properties files;
2. variables, as the apache/kafka image takes them: `KAFKA_` and the name in capitals, where `_` stands for a dot,
   `__` for an underscore and `___` for a dash. `KAFKA_LOG_RETENTION_MS=60000` is `log.retention.ms=60000`, and
   `ODRADEK_COMMIT_ORDER=kafka` is `odradek.commit.order=kafka`. `CLUSTER_ID` names the cluster;
3. options: `--set log.retention.ms=60000`, and `--host`, `--port`, `--data-dir`, `--log-format`, `--log-level`,
   `--tls`, `--sasl`.

`--default log.dirs=/data` has a lower precedence than all three: the container image sets its own values with it. The host
of `--default listeners=…` is the default of `--host` and `--control-host`. If `KAFKA_SERVICE_HOST` or another variable
`…_SERVICE_HOST` is set, the variables that Kubernetes sets for that Service are ignored. All nodes of a cluster run in one
process (`--nodes`): a quorum in `controller.quorum.voters` or `controller.quorum.bootstrap.servers` that has nodes of
other processes is an error. `--topic` creates topics, and `--seed FILE` writes records into a new data directory.

If Kafka would refuse a value, the broker does not start: an error message has the setting, the value and its source. The
broker also checks and accepts Kafka's settings that have no effect here, and warns of some on which you might rely, such
as `create.topic.policy.class.name`. For an unknown name it logs a warning with the most similar known name. An unknown
name is an error if it comes from `--set`, or begins with `odradek.` in a file; other programs have variables that begin
with `KAFKA_` or `ODRADEK_`, too. It is also an error if it looks like a security setting: a variable that begins with
`ODRADEK_AUTHORIZER`, `ODRADEK_CONTROL`, `ODRADEK_SASL`, `ODRADEK_SECURITY`, `ODRADEK_SSL`, `ODRADEK_TLS` or
`ODRADEK_TOKEN`, or is most similar to such a setting, and is not empty (`ODRADEK_CONTROL_TOKN`). Otherwise the control
port would be open although its user has set a token. `--set` of a setting that another option also sets is an error.
Variables of the images that are not settings (`KAFKA_HEAP_OPTS`, `KAFKA_LOG4J_*`, …) are ignored; `KAFKA_OPTS` may name
the file with the login modules of SASL.

If only `advertised.listeners` is set, the broker listens on the same ports at every address. Listeners in
`controller.listener.names`, or `CONTROLLER` if that is not set, are accepted but not opened. A listener at a
wildcard address is advertised as `localhost` unless `advertised.listeners` is set.

## TLS and SASL

Listeners with SSL, SASL_PLAINTEXT and SASL_SSL use Kafka's own settings: `ssl.*`, `sasl.*`, and
`listener.name.<listener>.*` for a single listener. Two options replace the settings that tests need most often:

`odradek serve --tls` creates a certificate authority and a certificate for localhost and the advertised hosts, and the
listeners use SSL. The log line of the start has the path of the authority's certificate: as `ca.pem`, and in
`truststore.p12` and `truststore.jks` (password `odradek`). They are in `tls/` in the data directory, or in
`--tls-directory`, and the next start uses them again. `client.*` is the certificate of a client, `User:CN=client`, for
`ssl.client.auth`.

`--sasl USER:PASSWORD[:MECHANISM]`, once for each user, makes the listeners require a login: SASL_PLAINTEXT, or SASL_SSL with
`--tls`. Mechanisms are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; without a mechanism the user has all three. The variable
`ODRADEK_SASL` has the same syntax, for machines where other users could read the command line, with one user in each line or
separated by semicolons. SCRAM credentials are stored in the cluster metadata, as after `kafka-storage format --add-scram`:
a restart with another password changes them, and so may admin clients.

| other settings | result |
| --- | --- |
| `listeners`, none of them secured | all of them are secured |
| `listeners` or `listener.security.protocol.map` that secure some | the others are not changed |
| a key store | the broker uses it; `--tls` creates no other |
| `sasl.enabled.mechanisms` | users have those of their mechanisms that are enabled; it is an error if a user has none |
| the login module of PLAIN for the listener | an error, if users of `--sasl` log in by PLAIN |

With `--nodes N` the nodes log in to each other as `odradek-broker` with a random password. If there is an authorizer, this
user is added to `super.users`.
"""


_ONE_NODE = """\
## Settings of one node

The prefix `odradek.node.N.` makes a setting apply to node N only; nodes are numbered from 1. It overrides the same setting
without a number, no matter which sources they come from. Each source can have it:

| source | the rack of the second node |
| --- | --- |
| an option | `--set odradek.node.2.broker.rack=b` |
| a variable | `ODRADEK_NODE_2_BROKER_RACK=b` |
| a file | `odradek.node.2.broker.rack=b` |

A number of a node that does not exist is an error.

Racks are an example: consumers with `client.rack` fetch from the follower in their rack (KIP-392), if the brokers have a
replica selector.

```console
$ odradek serve --port 9092 --control-port 18092 --nodes 3 --topic orders:1 \\
    --set odradek.node.1.broker.rack=a --set odradek.node.2.broker.rack=b --set odradek.node.3.broker.rack=c \\
    --set replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
$ export ODRADEK_CONTROL=http://127.0.0.1:18092
$ odradek trace --start
the trace is on
```

```python
import odradek
from confluent_kafka import Consumer, Producer

odradek.connect().move_leader("orders", 0, to=1)
producer = Producer({"bootstrap.servers": "localhost:9092"})
consumer = Consumer(
    {
        "bootstrap.servers": "localhost:9092",
        "client.id": "near",
        "client.rack": "c",
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe(["orders"])
for value in ("one", "two", "three"):
    producer.produce("orders", value)
    producer.flush()
    [message] = consumer.consume(1, timeout=30)
    print(message.value().decode())
consumer.close()
```

```text
one
two
three
```

The first Fetch goes to the leader, whose response names node 3 as preferred read replica; the others go there:

```console
$ odradek trace --api Fetch --client-id near | grep -o 'node .' | uniq
node 1
node 3
```
"""

_SEVERAL_NODES = """\
With `--nodes N` topics are replicated, and a killed node takes no partition offline: `default.replication.factor` and the
replication factors of the internal topics are N, at most 3. `transaction.state.log.min.isr` is 2 as in Kafka, but 1 with
two nodes, so that transactions continue without one of them. `min.insync.replicas` is 1 as in Kafka. The broker does not
change values that you set, except that those of internal topics are reduced to the number of nodes.
"""


_AT_RUN_TIME = """\
*at run time*: whether IncrementalAlterConfigs and `kafka-configs --alter` may change the setting. "all brokers": also for
all of them at once, without a broker id; "one broker": only for one broker id. The change is stored in the metadata log,
takes effect immediately if the setting has an effect, and survives a restart. The broker refuses changes of the others
with Kafka's error message.
"""
_WHEN = {"read-only": "refused", "cluster-wide": "all brokers", "per-broker": "one broker"}


def document() -> str:
    """Return the page docs/configuration.md as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield _ONE_NODE
    yield "## Settings of Odradek\n"
    yield "| name | default | allowed | meaning |"
    yield "| --- | --- | --- | --- |"
    for key in OWN_CONFIGS.values():
        yield _row(key.name, _value(key.default), _allowed(key), key.documentation)
    yield "\n## Defaults that differ from Kafka's\n"
    yield "With `odradek.defaults=kafka` these are Kafka's too, except `node.id` and the last two.\n"
    yield f"| name | default here | Kafka {RELEASE} |"
    yield "| --- | --- | --- |"
    keys = kafka_configs()
    for name, raw in EMULATOR_DEFAULTS.items():
        yield _row(
            name, _value(raw), "none, it must be set" if keys[name].required else _value(keys[name].default)
        )
    yield _row("log.dirs", "a temporary directory, removed at the end", _value(keys["log.dir"].default))
    yield _row("listeners", "`PLAINTEXT://127.0.0.1:9092`", _value(keys["listeners"].default))
    yield ""
    yield _SEVERAL_NODES
    yield from _topic_lines(TOPIC_CONFIGS.values())
    yield from _broker_lines(
        [
            *(key for key in keys.values() if not key.internal),
            *AUTHORIZER_CONFIGS.values(),
            *RUN_TIME_CONFIGS.values(),
        ]
    )
    yield from _group_lines()


def _topic_lines(keys: Iterable[TopicConfigKey]) -> Iterator[str]:
    yield "## Settings of a topic\n"
    yield "If a topic does not set a value, the broker's setting applies, where there is one. *no effect yet*: accepted,"
    yield "checked, stored and returned by DescribeConfigs, but without effect.\n"
    yield "| name | default | allowed | broker's setting | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for key in keys:
        remark = "" if key.effective else " *no effect yet*"
        synonyms = ", ".join(map(_code, key.synonyms)) or "–"
        yield _row(key.name, _value(key.default), _allowed(key), synonyms, key.documentation + remark)


def _broker_lines(keys: Iterable[BrokerConfigKey]) -> Iterator[str]:
    keys = list(keys)
    yield "\n## Settings of the broker\n"
    yield _AT_RUN_TIME
    yield "| name | default | allowed | here | at run time | meaning |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for key in keys:
        yield _row(
            key.name,
            _value(key.default),
            _allowed(key),
            "effective" if key.effective else "accepted without effect",
            _WHEN[key.update_mode],
            documentation_of(key.name),
        )


def _group_lines() -> Iterator[str]:
    yield "\n## Settings of a group\n"
    yield "Set by IncrementalAlterConfigs. If a group does not set a value, the broker's setting `group.<name>` applies.\n"
    yield "| name | allowed | meaning |"
    yield "| --- | --- | --- |"
    for key in group_configs().values():
        if not key.internal:
            yield _row(key.name, _allowed(key), key.documentation)
    yield "\n## Settings of a client metrics subscription\n"
    yield "| name | default | allowed | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in METRICS_CONFIGS.values():
        yield _row(metric.name, _value(metric.default), _allowed(metric), metric.documentation)
    yield ""


def _row(name: str, *cells: str) -> str:
    return "| " + " | ".join((_code(name), *(cell.replace("|", "\\|") for cell in cells))) + " |"


def _code(text: str) -> str:
    return f"`{text}`"


def _value(value: object) -> str:
    if isinstance(value, int) and value in ((1 << 31) - 1, (1 << 63) - 1):
        return f"2^{value.bit_length()}−1"
    text = to_text(value)
    return "none" if text is None else _code(text) if text else "empty"


def _allowed(key: ConfigKey) -> str:
    kind = key.config_type.lower()
    check = "" if key.validator is None else getattr(key.validator, "text", lambda: "")()
    return f"{kind} {check}".rstrip()


if __name__ == "__main__":
    sys.stdout.write(document())
