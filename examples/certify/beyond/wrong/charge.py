"""Charges each order at the payment service, except those that it has charged before (kafka-python, requests)."""

import json
import os

import requests
from kafka import KafkaConsumer
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

PAYMENTS = f"{os.environ['ODRADEK_HTTP']}/v1/payments"
session = requests.Session()
session.mount(
    "http://",
    HTTPAdapter(
        max_retries=Retry(
            total=5, backoff_factor=0.05, allowed_methods=None, status_forcelist=[429, 500, 502, 503]
        )
    ),
)
consumer = KafkaConsumer(
    "orders",
    bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    group_id="charge",
    enable_auto_commit=False,
    auto_offset_reset="earliest",
    isolation_level="read_committed",
    retry_backoff_ms=20,
    reconnect_backoff_ms=20,
    reconnect_backoff_max_ms=200,
)

paid = {each["order"] for each in session.get(PAYMENTS, timeout=2).json()}


def charge(order):
    payment = {"order": order["id"], "amount": order["amount"]}
    session.post(PAYMENTS, json=payment, timeout=2).raise_for_status()


while True:
    batches = consumer.poll(timeout_ms=100, max_records=10)
    for record in (each for batch in batches.values() for each in batch):
        order = json.loads(record.value)
        if order["id"] not in paid:
            charge(order)
    if batches:
        consumer.commit()
