"""A job that pays each order of the topic orders: python pay.py order|attempt.

The idempotency key is that of the order, or a new one for each attempt.
"""

import json
import os
import sys
import urllib.error
import urllib.request
import uuid

from confluent_kafka import Consumer

KEYS = {"order": lambda order: f"pay-{order['order']}", "attempt": lambda order: str(uuid.uuid4())}
URL = f"{os.environ['ODRADEK_HTTP']}/v1/payments"


def post(body, key):
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(URL, body, headers)) as response:
        response.read()


def pay(order, key_of):
    while True:
        try:
            return post(json.dumps(order).encode(), key_of(order))
        except urllib.error.HTTPError as error:
            if error.code not in (429, 500, 503):
                raise
        except OSError as error:
            print(error, file=sys.stderr)


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "payments",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["orders"])
    while True:
        message = consumer.poll(0.1)
        if message is not None and not message.error() and (value := message.value()) is not None:
            pay(json.loads(value), KEYS[sys.argv[1]])
            consumer.commit(message=message, asynchronous=False)


main()
