"""Requests as bytes over a socket of their own, and the parts of an answer that are recorded.

No HTTP library writes the requests: kits have to send what no library would (two headers of a name, no Host, a
body that is shorter than announced). Not here: what of an answer varies (`varying`), the requests (`cases_*`).
"""
import gzip
import http.client
import json
import os
import socket
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from tsdbwire import encode_rw1, encode_rw2, snappy_literal  # noqa: E402

# Midnight (UTC) of a day in the past, in seconds: all points lie near it, so that answers are equal on any day.
DAY = 1700006400
FORM = "application/x-www-form-urlencoded"
# A server that does not answer within that many seconds is broken, on a busy machine, too.
ANSWER_SECONDS = 120
# Headers that say nothing about the answer, or only how its bytes were sent.
UNRECORDED_HEADERS = {"date", "content-length", "connection", "transfer-encoding", "keep-alive"}


class Case:
    """A request, and the rules for what varies in its answer.

    `until` is text that a correct answer has sometime: the request is repeated until then, since what is sent
    to listeners without answers is stored later.
    """

    def __init__(self, method, path, params=None, body=b"", headers=(), rules=(), until=None, announced=None,
                 is_moving=False):
        self.method, self.body, self.rules, self.until = method, body, tuple(rules), until
        query = urllib.parse.urlencode(params, doseq=True) if params else ""
        self.target = path + ("?" + query if query else "")
        self.headers = list(headers.items()) if isinstance(headers, dict) else list(headers)
        if isinstance(self.body, str):
            self.body = self.body.encode()
        # Whether the request has times of the run in it.
        self.is_moving = is_moving
        # Bytes that the request claims to have, if not those it has.
        self.announced = announced

    def bytes_of(self, port):
        names = {name.lower() for name, _ in self.headers}
        headers = [(name, value) for name, value in self.headers if value is not None]
        if "host" not in names:
            headers.insert(0, ("Host", "127.0.0.1:%d" % port))
        if "transfer-encoding" not in names and (self.body or self.method in ("POST", "PUT")):
            length = len(self.body) if self.announced is None else self.announced
            headers.append(("Content-Length", str(length)))
        headers.append(("Connection", "close"))
        head = "%s %s HTTP/1.1\r\n" % (self.method, self.target)
        head += "".join("%s: %s\r\n" % header for header in headers)
        return head.encode("latin-1") + b"\r\n" + self.body


class Packet:
    """Bytes for a listener that never answers; `listener` is the name of a port, `kind` tcp or udp."""

    def __init__(self, kind, listener, body):
        self.kind, self.listener, self.body = kind, listener, body

    def send(self, port):
        kind = socket.SOCK_STREAM if self.kind == "tcp" else socket.SOCK_DGRAM
        with socket.socket(socket.AF_INET, kind) as s:
            s.connect(("127.0.0.1", port))
            s.sendall(self.body)


class Answer:
    """Status, headers as a list of pairs, and the body without its compression."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


def send(port, case):
    """Sends a request; None if the server closes the connection without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as s:
        try:
            s.sendall(case.bytes_of(port))
            if case.announced is not None:
                s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            # The server may answer before it has read everything.
            pass
        response = http.client.HTTPResponse(s, method=case.method)
        try:
            response.begin()
            body = response.read()
        except (http.client.HTTPException, ConnectionResetError):
            return None
    headers = [(name.lower(), value) for name, value in response.getheaders()]
    if ("content-encoding", "gzip") in headers:
        body = gzip.decompress(body)
    return Answer(response.status, headers, body)


def send_until(port, case):
    """As `send`, again and again until the answer has the text that the case waits for."""
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        answer = send(port, case)
        if case.until is None or (answer and case.until.encode() in answer.body):
            return answer
        if time.monotonic() > end:
            raise SystemExit("%s %s: no answer with %r" % (case.method, case.target, case.until))
        time.sleep(0.02)


def get(path, params=None, headers=(), **others):
    return Case("GET", path, params, headers=headers, **others)


def form(path, params, headers=(), **others):
    """POST with the parameters as a form."""
    body = urllib.parse.urlencode(params, doseq=True)
    headers = list(headers.items()) if isinstance(headers, dict) else list(headers)
    return Case("POST", path, body=body, headers=[("Content-Type", FORM)] + headers, **others)


def post(path, body=b"", params=None, headers=(), **others):
    return Case("POST", path, params, body=body, headers=headers, **others)


def post_json(path, value, headers=(), **others):
    headers = [("Content-Type", "application/json")] + list(headers)
    body = value if isinstance(value, (str, bytes)) else json.dumps(value)
    return Case("POST", path, body=body, headers=headers, **others)


def write_headers(proto=1, **changed):
    """Headers of a remote write; a name with None is left out, `_` stands for `-`."""
    kinds = {1: "application/x-protobuf", 2: "application/x-protobuf;proto=io.prometheus.write.v2.Request"}
    headers = {"Content-Type": kinds[proto], "Content-Encoding": "snappy",
               "X-Prometheus-Remote-Write-Version": {1: "0.1.0", 2: "2.0.0"}[proto]}
    headers.update({name.replace("_", "-"): value for name, value in changed.items()})
    return headers


def remote_write(series, proto=1, path="/api/v1/write", meta=None, headers=(), params=None, **others):
    raw = encode_rw2(series, meta) if proto == 2 else encode_rw1(series, meta or ())
    headers = dict(write_headers(proto), **dict(headers))
    return Case("POST", path, params, body=snappy_literal(raw), headers=headers, **others)
