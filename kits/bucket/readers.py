#!/usr/bin/env python3
"""Two read-only processes over the bucket of a server that writes.

A proxy sends each request to one of them, and to the other if the first does
not answer. One of them is killed every two seconds and started again. All the
time the server takes samples of one day after another, half of them late, and
flushes, compacts, uploads and removes its local copies. Every answer about the
days before must be the server's, and each new day must be seen by both within
the poll interval.
"""
import argparse
import atexit
import http.client
import http.server
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from harness import BUCKET, Chronolith, canonical, check, free_port, get, report, s3_flags, start_gateway

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

DAY_S, STEP_S, SERIES = 86_400, 120, 20
FIRST_DAY = 1_700_006_400 // DAY_S * DAY_S
KILL_EVERY_S = 2


class Readers:
    """Two read-only processes, of which one at a time may be dead."""

    def __init__(self, server, flags, log):
        self.argv = (server, flags, log)
        self.running = [Chronolith(*self.argv) for _ in range(2)]
        self.kills = 0
        self.stopped = threading.Event()
        self.killer = threading.Thread(target=self.kill_in_turn)

    def kill_in_turn(self):
        while not self.stopped.wait(KILL_EVERY_S):
            turn = self.kills % 2
            self.running[turn].process.kill()
            self.running[turn].process.wait()
            self.running[turn] = Chronolith(*self.argv)
            self.kills += 1

    def bases(self, first):
        return [self.running[first].base, self.running[1 - first].base]


class Proxy(http.server.BaseHTTPRequestHandler):
    """Forwards a GET to the readers in turn; to the next one if the connection fails or is cut."""

    protocol_version = "HTTP/1.1"
    readers = None
    turn = 0
    retried = 0

    def do_GET(self):
        Proxy.turn += 1
        deadline = time.monotonic() + 30
        while True:
            for base in Proxy.readers.bases(Proxy.turn % 2):
                try:
                    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=60)
                    connection.request("GET", self.path)
                    answer = connection.getresponse()
                    return self.send(answer.status, answer.read())
                except (OSError, http.client.HTTPException):
                    Proxy.retried += 1
            if time.monotonic() > deadline:
                return self.send(502, b"{}")

    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start_proxy(readers):
    Proxy.readers = readers
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % proxy.server_port


def write_day(server, day, parity):
    """Every second sample of a day, in one request per six hours."""
    start = FIRST_DAY + day * DAY_S
    for part in range(4):
        series = []
        for number in range(SERIES):
            times = range(start + part * DAY_S // 4 + parity * STEP_S, start + (part + 1) * DAY_S // 4, 2 * STEP_S)
            samples = [(at * 1000, float((at // STEP_S * 31 + number * 7) % 1000) / 8) for at in times]
            series.append(({"__name__": "readers_load", "host": "h%02d" % number}, samples))
        body = wire.snappy_literal(wire.encode_rw1(series))
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        status, _, answer = wire.Client(server.base).request("POST", "/api/v1/write", body, headers)
        if status not in (200, 204):
            raise SystemExit("write: %d %r" % (status, answer))


def metric(server, pattern):
    text = urllib.request.urlopen(server.base + "/metrics", timeout=10).read().decode()
    return sum(float(found) for found in re.findall(r"^%s (\S+)$" % pattern, text, re.M))


def expected_samples(day):
    return SERIES * (DAY_S // STEP_S) * (day + 1)


def count_of(base, day):
    """Samples up to the end of a day, from blocks alone; 0 if there is no answer."""
    parameters = {"query": "sum(count_over_time(readers_load[%dd]))" % (day + 1), "time": FIRST_DAY + (day + 1) * DAY_S - 1}
    status, body, _ = get(base, "/api/v1/query", **parameters)
    result = body.get("data", {}).get("result", []) if status == 200 else []
    return int(float(result[0]["value"][1])) if result else 0


def wait_until_uploaded(server):
    """Waits until the head is empty and the bucket has all blocks."""
    begun = time.monotonic()
    while time.monotonic() < begun + 120:
        if metric(server, "chronolith_bucket_upload_waiting_blocks") == 0 and metric(server, "chronolith_head_series") == 0:
            return None
        time.sleep(0.2)
    return "not uploaded after 120 s: %d blocks wait, %d series in the head" % (
        metric(server, "chronolith_bucket_upload_waiting_blocks"), metric(server, "chronolith_head_series"))


def questions(day):
    start, end = FIRST_DAY, FIRST_DAY + (day + 1) * DAY_S - 1
    for text in ["readers_load", "sum(readers_load)", "avg by (host) (avg_over_time(readers_load[1h]))",
                 'rate(readers_load{host=~"h0.*"}[30m])', "count(count_over_time(readers_load[6h]))"]:
        yield "/api/v1/query_range", {"query": text, "start": start, "end": end, "step": 1800, "nocache": 1}
    yield "/api/v1/query", {"query": "sum(count_over_time(readers_load[%dd]))" % (day + 1), "time": end}
    yield "/api/v1/series", {"match[]": "readers_load", "start": start, "end": end}
    yield "/api/v1/label/host/values", {"start": start, "end": end}


def answers(base, day):
    return [(path, parameters, get(base, path, **parameters)) for path, parameters in questions(day)]


class Comparer:
    """Asks for the days that are in the bucket, until it is stopped."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.known = []
        self.asked = 0
        self.wrong = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(2)]

    def run(self):
        while not self.stopped.is_set():
            for path, parameters, want in list(self.known):
                found = get(self.proxy, path, **parameters)
                self.asked += 1
                if found[0] != 200 or canonical(found[1].get("data")) != canonical(want[1].get("data")):
                    self.wrong.append("%s %s: status %d, %.300s" % (path, parameters, found[0], canonical(found[1].get("data"))))
                if self.stopped.is_set():
                    return
            if not self.known:
                time.sleep(0.1)


def wait_until_seen(readers, day, poll_s):
    """Seconds until both readers have all samples of a day; an error text after the poll interval."""
    begun = time.monotonic()
    want = expected_samples(day)
    # One may be starting: its first answer is within the next kill.
    while time.monotonic() < begun + poll_s + KILL_EVERY_S:
        try:
            if all(count_of(base, day) == want for base in readers.bases(0)):
                return None
        except OSError:
            pass
        time.sleep(0.1)
    return "after %.1f s not seen by both" % (time.monotonic() - begun)


def run(arguments, label, flags, work, log):
    data = os.path.join(work, "data-" + label)
    writing = ["--data-dir", data, "--retention", "100y", "--self-scrape", "0s", "--flush-delay", "1s", "--flush-small-window", "0",
               "--idle-after", "3s", "--bucket.local-retention", "1s", "--bucket.poll", "1s"]
    server = Chronolith(arguments.server, flags + writing, log)
    readers = Readers(arguments.server, ["--read-only", "--bucket.poll", "%ds" % arguments.poll] + flags, log)
    comparer = Comparer(start_proxy(readers))
    for thread in [readers.killer] + comparer.threads:
        thread.start()
    try:
        for day in range(arguments.days):
            # The second half overlaps the block of the first one: they are merged.
            for half in range(2):
                write_day(server, day, half)
                check("%s: half %d of day %d is uploaded" % (label, half, day), wait_until_uploaded(server))
            check("%s: day %d is seen within the poll interval" % (label, day), wait_until_seen(readers, day, arguments.poll))
            want = answers(server.base, day)
            bad = [one for one in want if one[2][0] != 200]
            check("%s: the server answers for day %d" % (label, day), None if not bad else str(bad)[:300])
            comparer.known = want
        time.sleep(2 * KILL_EVERY_S)
    finally:
        comparer.stopped.set()
        readers.stopped.set()
        for thread in [readers.killer] + comparer.threads:
            thread.join()
    merges = metric(server, "chronolith_compaction_runs_total")
    print("%s: %d answers compared, %d kills, %d requests sent again, %d compactions" %
          (label, comparer.asked, readers.kills, Proxy.retried, merges))
    check(label + ": every answer is the server's", None if not comparer.wrong else "%d of %d: %s" % (
        len(comparer.wrong), comparer.asked, comparer.wrong[0]))
    check(label + ": answers were compared while readers were killed", None if comparer.asked > 50 and readers.kills > 3 else
          "%d answers, %d kills" % (comparer.asked, readers.kills))
    check(label + ": blocks were compacted meanwhile", None if merges > 0 else "no compaction")
    for one in readers.running + [server]:
        one.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="binary of Chronolith")
    parser.add_argument("--versitygw", help="binary of versitygw; without it the S3 part is not run")
    parser.add_argument("--days", type=int, default=2, help="days of samples that are written, one after another")
    parser.add_argument("--poll", type=int, default=5, help="bucket.poll of the readers, seconds")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bucket-readers-")
    atexit.register(shutil.rmtree, work, True)
    log = open(os.path.join(work, "log"), "w")
    directory = os.path.join(work, "bucket")
    os.mkdir(directory)
    run(arguments, "directory", ["--bucket", "file://" + directory], work, log)
    if arguments.versitygw:
        arguments.s3_port, arguments.s3_root = free_port(), os.path.join(work, "s3")
        os.makedirs(os.path.join(arguments.s3_root, BUCKET))
        start_gateway(arguments, log)
        run(arguments, "s3", s3_flags(arguments), work, log)
    else:
        print("not run: S3 (no --versitygw)")
    report(log)


main()
