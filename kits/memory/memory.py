#!/usr/bin/env python3
"""Send hostile queries one at a time and measure the resident memory that each one takes.

The generator calls every function of PromQL, InfluxQL and Graphite's language
with arguments that make results, names, plans or parameters large.  A request
fails if it takes more resident memory than `query.memory` and 64 MB, lasts
longer than `query.timeout` and a margin, or if the server ends.
"""
import argparse
import collections
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
import graphite  # noqa: E402
import influxql  # noqa: E402
import promql  # noqa: E402
from tsdbwire import encode_rw1, free_port, snappy  # noqa: E402

MB = 1 << 20
ALLOWANCE = 64 * MB
TIMEOUT_S = 10
# A loaded machine runs the checks of a deadline late.
TIME_MARGIN_S = 5
# Stands for the status of an answer without an end.
CUT = 1
POINT_COUNT = 360
SERIES_COUNT = 300


class Server:
    """A server with small limits over an empty directory."""

    def __init__(self, binary, query_memory, timeout_s=TIMEOUT_S):
        self.dir = tempfile.mkdtemp(prefix="memory-kit-")
        self.port, carbon = (free_port(port) for port in random.sample(range(20000, 60000), 2))
        self.log = open(os.path.join(self.dir, "log"), "w+b")
        command = [binary, "serve", "--data-dir", os.path.join(self.dir, "data"),
                   "--http", "127.0.0.1:%d" % self.port, "--carbon.listen", "127.0.0.1:%d" % carbon,
                   "--query.memory", "%dB" % query_memory, "--query.timeout", "%ds" % timeout_s]
        # Freed pages leave at once, so that one request does not run on what another one left.
        env = dict(os.environ, _RJEM_MALLOC_CONF="dirty_decay_ms:0,muzzy_decay_ms:0")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=env)
        end = time.time() + 30
        while True:
            try:
                # Before its WAL is replayed, the server answers with another status.
                if self.ask("GET", "/-/ready", b"", {})[0] == 200:
                    return
            except OSError:
                pass
            if time.time() > end or self.process.poll() is not None:
                raise SystemExit("the server did not start: " + self.log_tail())
            time.sleep(0.1)

    def ask(self, method, path, body, headers):
        """Status and body of an answer; the body is read and only its start is kept."""
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), data=body or None,
                                         method=method, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=TIMEOUT_S * 6)
        except urllib.error.HTTPError as error:
            answer = error
        try:
            start = answer.read(1 << 20)
            while answer.read(1 << 20):
                pass
        except http.client.IncompleteRead:
            # An answer that is streamed reports an error by its missing end.
            return CUT, b""
        return answer.status, start

    def memory(self, field):
        with open("/proc/%d/status" % self.process.pid) as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) << 10
        return 0

    def reset_peak(self):
        """Sets the peak (VmHWM) to what is resident at this moment, and returns that."""
        with open("/proc/%d/clear_refs" % self.process.pid, "w") as refs:
            refs.write("5")
        return self.memory("VmRSS")

    def log_tail(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-2000:].decode("utf-8", "replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def feed(server, now):
    """The last hour of a few hundred series by each protocol, and one row of 20,000 fields."""
    times = [(now - (POINT_COUNT - i) * 10) for i in range(POINT_COUNT)]
    series = [({"__name__": "m%d" % (i % 3), "host": "h%d" % i, "zone": "z%d" % (i % 7), "le": str(i % 11)},
               [(t * 1000, float(i + k % 17)) for k, t in enumerate(times)]) for i in range(SERIES_COUNT)]
    for i in range(0, SERIES_COUNT, 50):
        send(server, "/api/v1/write", snappy(encode_rw1(series[i:i + 50])),
             {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
              "X-Prometheus-Remote-Write-Version": "0.1.0"})
    send(server, "/query", urllib.parse.urlencode({"q": "CREATE DATABASE d"}).encode(),
         {"Content-Type": "application/x-www-form-urlencoded"})
    lines = ["m,host=h%d v=%d.5,i=%di,s=\"text %d\",b=%s %d" % (h, h + k % 13, k, k % 5, k % 2 == 0, t)
             for h in range(20) for k, t in enumerate(times)]
    wide = ["wide " + ",".join("f%d=%d" % (i, i) for i in range(n, n + 2000)) + " %d" % times[-1]
            for n in range(0, 20000, 2000)]
    for body in ("\n".join(lines), *wide):
        send(server, "/write?db=d&precision=s", body.encode(), {})
    points = ["%s.%d.rps %d %d" % ("ab"[i % 2], i, i + k % 19, t) for i in range(SERIES_COUNT)
              for k, t in enumerate(times)]
    points += ["t.%d;host=h%d;zone=z%d %d %d" % (i, i, i % 5, i, times[-1]) for i in range(100)]
    for i in range(0, len(points), 20000):
        send(server, "/api/v1/carbon", "\n".join(points[i:i + 20000]).encode(), {})


def send(server, path, body, headers):
    status, text = server.ask("POST", path, body, headers)
    if status // 100 != 2:
        raise SystemExit("the data were refused: %s: %d %s" % (path, status, text[:200]))


class Requests:
    """Hostile requests of each language in turn: `(language, description, method, path, body)`."""

    def __init__(self, server, seed, now):
        self.rnd = random.Random(seed)
        listed = json.loads(server.ask("GET", "/functions?format=json", b"", {})[1])
        features = json.loads(server.ask("GET", "/api/v1/features", b"", {})[1])["data"]
        self.makers = [
            promql.Maker(self.rnd, now, sorted(features["promql_functions"]), lambda text: self.parses(server, text)),
            influxql.Maker(self.rnd, now),
            graphite.Maker(self.rnd, now, listed),
        ]

    @staticmethod
    def parses(server, text):
        body = urllib.parse.urlencode({"query": text}).encode()
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return server.ask("POST", "/api/v1/parse_query", body, form)[0] == 200

    def make(self, languages):
        makers = [maker for maker in self.makers if maker.language in languages]
        while True:
            for maker in makers:
                yield (maker.language, *maker.make())


def run_one(server, request, limit):
    """What is wrong with a request, or None; its peak in MB, seconds, and status."""
    language, description, method, path, body = request
    before = server.reset_peak()
    start = time.time()
    form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    try:
        status, _ = server.ask(method, path, body, form)
    except (OSError, http.client.HTTPException):
        status = 0
        # A process that was killed is seen as ended a moment later.
        time.sleep(0.2)
    seconds = time.time() - start
    if server.process.poll() is not None:
        return "the server ended: %s" % server.log_tail(), 0, seconds, 0
    peak = max(server.memory("VmHWM") - before, 0)
    wrong = None
    if status == 0:
        wrong = "the connection ended without an answer"
    elif status == 500:
        wrong = "status 500"
    elif peak > limit:
        wrong = "%d MB of resident memory" % (peak // MB)
    elif seconds > TIMEOUT_S + TIME_MARGIN_S:
        wrong = "%.1f s" % seconds
    return wrong, peak // MB, seconds, status


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="the program `chronolith`")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--languages", default="promql,influxql,graphite")
    parser.add_argument("--query-memory-mb", type=int, default=256)
    parser.add_argument("--verbose", action="store_true", help="a line for each request")
    options = parser.parse_args()
    now = int(time.time()) // 10 * 10
    limit = options.query_memory_mb * MB + ALLOWANCE
    server = Server(options.server, options.query_memory_mb * MB)
    failures, statuses, highest = [], collections.Counter(), collections.Counter()
    try:
        feed(server, now)
        requests = Requests(server, options.seed, now).make(options.languages.split(","))
        for number in range(options.count):
            request = next(requests)
            wrong, peak, seconds, status = run_one(server, request, limit)
            statuses["%s %d" % (request[0], status)] += 1
            highest[request[0]] = max(highest[request[0]], peak)
            if wrong or options.verbose:
                print("%s %d: %s: %s; %d MB, %.2f s, status %d" % (
                    "FAIL" if wrong else "ok", number, request[0], wrong or request[1][:100], peak, seconds, status),
                    flush=True)
            if wrong:
                print("     %s" % request[1][:500], flush=True)
                failures.append(request)
            if server.process.poll() is not None:
                server.stop()
                server = Server(options.server, options.query_memory_mb * MB)
                feed(server, now)
    finally:
        server.stop()
    print("answers: %s" % ", ".join("%s: %d" % pair for pair in sorted(statuses.items())))
    print("highest peaks in MB: %s" % ", ".join("%s: %d" % pair for pair in sorted(highest.items())))
    print("%d passed, %d failed" % (options.count - len(failures), len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
