"""HTTP service: stores each order that is posted, and publishes it."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

import psycopg
from confluent_kafka import Producer

producer = Producer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "enable.idempotence": True,
        "linger.ms": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            status = self.place(json.loads(body))
        except psycopg.Error as failure:
            print(failure, flush=True)
            status = 503
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def place(self, order):
        with psycopg.connect(os.environ["ODRADEK_POSTGRES"]) as db:
            is_new = db.execute(
                "INSERT INTO results VALUES (%(id)s, %(customer)s, %(amount)s) ON CONFLICT DO NOTHING", order
            ).rowcount
        if not is_new:
            return 200
        producer.produce("events", json.dumps(order), order["id"])
        return 503 if producer.flush(10) else 201

    def log_message(self, *arguments):
        pass


HTTPServer(("127.0.0.1", int(os.environ["ODRADEK_PORT"])), Orders).serve_forever()
