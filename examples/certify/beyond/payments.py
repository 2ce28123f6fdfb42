"""A payments service, in memory: python payments.py PORT. It prints its URL; port 0 is a free port.

POST /v1/payments {"order": "o1", "amount": 5} makes a payment. With an Idempotency-Key that it has seen, it makes none, and
answers as the first time, with Idempotency-Replayed: true; for another body under the same key it answers 422.
GET /v1/payments lists the payments, GET /v1/payments/ID shows one, DELETE /v1/payments forgets everything.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Payments:
    def __init__(self):
        self.lock, self.made, self.by_key = threading.Lock(), [], {}

    def make(self, key, body):
        """Return (status, answer, whether it is replayed)."""
        with self.lock:
            if key in self.by_key:
                known, answer = self.by_key[key]
                return (201, answer, True) if known == body else (422, {"error": "another body"}, False)
            answer = {"id": f"pay_{len(self.made) + 1:08d}", "status": "made", **body}
            self.made.append(answer)
            if key:
                self.by_key[key] = body, answer
            return 201, answer, False

    def forget(self):
        with self.lock:
            self.made, self.by_key = [], {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment
    payments: Payments

    def do_POST(self):
        try:
            body = json.loads(self.body())
        except ValueError as error:
            return self.answer(400, {"error": str(error)})
        if self.path != "/v1/payments":
            return self.answer(404, {"error": "not found"})
        status, answer, is_replayed = self.payments.make(self.headers.get("Idempotency-Key"), body)
        return self.answer(status, answer, {"Idempotency-Replayed": "true"} if is_replayed else {})

    def do_GET(self):
        made = self.payments.made
        if self.path == "/v1/payments":
            return self.answer(200, made)
        found = [each for each in made if self.path == f"/v1/payments/{each['id']}"]
        return self.answer(200, found[0]) if found else self.answer(404, {"error": "not found"})

    def do_DELETE(self):
        self.payments.forget()
        self.send_response(204)
        self.end_headers()

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def answer(self, status, body, headers=()):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **dict(headers)}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        pass


def serve(port=0):
    handler = type("Bound", (Handler,), {"payments": Payments()})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    server = serve(int(sys.argv[1]))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
