#!/usr/bin/env python3
"""`SELECT *` of wide measurements in nested subqueries: linear time, and limits that hold.

Three parts.  CPU seconds of the server for 2,500 to 20,000 fields, one level
and ten: twice the fields may take at most 2.6 times the seconds.  Hostile
sizes: each ends within `query.timeout` and a second, and takes no more
resident memory than `query.memory` and 64 MB.  Disconnects: a second after
the client has gone, no query runs any more and the server is idle.
"""
import argparse
import json
import os
import socket
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from memory import ALLOWANCE, MB, TIMEOUT_S, Server, send  # noqa: E402

LINEAR_COUNTS = [2500, 5000, 10000, 20000]
LINEAR_LEVELS = [1, 10]
# Twice the fields; the rest of a request does not grow.
RATIO_MAX = 2.6
HOSTILE = [(20000, 40), (20000, 60), (100000, 20), (100000, 60), (500000, 1), (500000, 3), (500000, 60)]
DISCONNECTS = [(20000, 10), (20000, 40), (100000, 1), (100000, 20), (500000, 1), (500000, 3), (500000, 60)]
FIELDS_PER_LINE = 2500
# Waits of a client before it disconnects, in seconds.
WAITS = [0.05, 0.3, 1.0]
# CPU seconds are compared, so that a loaded machine may take its time.
LINEAR_TIMEOUT_S = 55
CLOCK_HZ = os.sysconf("SC_CLK_TCK")


def feed(server, counts):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    send(server, "/query", urllib.parse.urlencode({"q": "CREATE DATABASE d"}).encode(), form)
    for count in counts:
        for first in range(0, count, FIELDS_PER_LINE):
            fields = range(first, min(first + FIELDS_PER_LINE, count))
            line = "w%d,host=a " % count + ",".join("f%06d=%d" % (i, i) for i in fields) + " 1000000000"
            send(server, "/write?db=d", line.encode(), {})


def nested(fields, levels):
    """A SELECT of `levels` levels."""
    return "SELECT * FROM " + "(SELECT * FROM " * (levels - 1) + "w%d" % fields + ")" * (levels - 1)


def query(server, text):
    return server.ask("GET", "/query?" + urllib.parse.urlencode({"db": "d", "q": text, "epoch": "ns"}), b"", {})


def cpu_seconds(server):
    with open("/proc/%d/stat" % server.process.pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_HZ


def expected_row(fields):
    return [1000000000, *range(fields), "a"]


def linear(server, repeats):
    """Failures of the comparison of CPU seconds."""
    failures = []
    for levels in LINEAR_LEVELS:
        seconds = []
        for fields in LINEAR_COUNTS:
            status, body = query(server, nested(fields, levels))
            if status != 200:
                raise SystemExit("%d fields, %d levels: status %d, %s" % (fields, levels, status, body[:200]))
            row = json.loads(body)["results"][0].get("series", [{"values": [None]}])[0]["values"][0]
            if row != expected_row(fields):
                failures.append("%d fields, %d levels: %s" % (fields, levels, body[:200]))
            start = cpu_seconds(server)
            for _ in range(repeats):
                query(server, nested(fields, levels))
            seconds.append((cpu_seconds(server) - start) / repeats)
        print("%2d levels: %s" % (levels, ", ".join(
            "%d fields %.3f s" % pair for pair in zip(LINEAR_COUNTS, seconds))), flush=True)
        for (fields, less), (_, more) in zip(zip(LINEAR_COUNTS, seconds), zip(LINEAR_COUNTS[1:], seconds[1:])):
            if more > less * RATIO_MAX + 0.02:
                failures.append("%d levels: %.3f s for %d fields, %.3f s for twice" % (levels, less, fields, more))
    return failures


def hostile(server, limit):
    failures = []
    for fields, levels in HOSTILE:
        before = server.reset_peak()
        start = time.monotonic()
        status, body = query(server, nested(fields, levels))
        seconds = time.monotonic() - start
        peak = max(server.memory("VmHWM") - before, 0)
        # An error within a streamed answer is its last line, or its missing end.
        message = body[-200:].decode("utf-8", "replace") if b'"error"' in body else ""
        print("%6d fields, %2d levels: status %d, %.2f s, %d MB %s" % (
            fields, levels, status, seconds, peak // MB, message), flush=True)
        if server.process.poll() is not None:
            return failures + ["the server ended: " + server.log_tail()]
        if seconds > TIMEOUT_S + 1 or peak > limit + ALLOWANCE:
            failures.append("%d fields, %d levels: %.2f s, %d MB" % (fields, levels, seconds, peak // MB))
    return failures


def running_queries(server):
    body = query(server, "SHOW QUERIES")[1]
    series = json.loads(body)["results"][0].get("series", [])
    return sum(1 for one in series for row in one["values"] if "SHOW QUERIES" not in str(row))


def disconnects(server):
    failures = []
    for fields, levels in DISCONNECTS:
        for wait in WAITS:
            path = "/query?" + urllib.parse.urlencode({"db": "d", "q": nested(fields, levels)})
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
            time.sleep(wait)
            client.close()
            left = time.monotonic()
            while running_queries(server) and time.monotonic() - left < TIMEOUT_S:
                time.sleep(0.02)
            seconds = time.monotonic() - left
            start = cpu_seconds(server)
            time.sleep(0.5)
            busy = cpu_seconds(server) - start
            print("%6d fields, %2d levels, gone after %.2f s: ended %.2f s later, %.2f s of CPU then" % (
                fields, levels, wait, seconds, busy), flush=True)
            if seconds > 1 or busy > 0.25:
                failures.append("%d fields, %d levels, gone after %.2f s: %.2f s, busy %.2f s" % (
                    fields, levels, wait, seconds, busy))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="the program `chronolith`")
    parser.add_argument("--query-memory-mb", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--parts", default="linear,hostile,disconnects")
    options = parser.parse_args()
    limit = options.query_memory_mb * MB
    parts = {"linear": lambda server: linear(server, options.repeats), "hostile": lambda server: hostile(server, limit),
             "disconnects": disconnects}
    chosen = options.parts.split(",")
    counts = {"linear": LINEAR_COUNTS, "hostile": [fields for fields, _ in HOSTILE],
              "disconnects": [fields for fields, _ in DISCONNECTS]}
    failures = []
    for name in chosen:
        server = Server(options.server, limit, LINEAR_TIMEOUT_S if name == "linear" else TIMEOUT_S)
        try:
            feed(server, sorted(set(counts[name])))
            failures += parts[name](server)
        finally:
            server.stop()
    for failure in failures:
        print("FAIL %s" % failure)
    print("%d passed, %d failed" % (max(len(chosen) - len(failures), 0), len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
