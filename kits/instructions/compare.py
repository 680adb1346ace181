#!/usr/bin/env python3
"""Count the instructions that writes and queries cost two builds of the server, and print their ratio.

Times on a shared machine cannot resolve one percent. Each build runs below `valgrind --tool=callgrind` and counts only
while a case runs; both do the same work, one after the other, or at the same time with --parallel."""
import argparse
import ctypes
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

STEP_MS, OFFSET_MS = 15_000, 3_500
STEPS_PER_REQUEST = 20
HANDLERS = ["/api/query", "/api/write", "/login", "/static", "/health"]
CODES = ["200", "404", "500", "503"]
BOUNDS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"]
HEAD_STEPS = 100        # 25 min
BLOCK_STEPS = 720       # 3 h, a day ago
LATE_STEPS = 120
READY_S, FLUSH_S = 120, 900


def corpus(instances):
    """(labels, value of a step) per series: counters, classic buckets, gauges with a value of their own, info."""
    series = []
    for i in range(instances):
        base = {"job": "job%d" % (i % 10), "instance": "10.0.%d.%d:9100" % (i // 250, i % 250)}
        for h, handler in enumerate(HANDLERS):
            for c, code in enumerate(CODES):
                rate = 1 + (i * 7 + h * 3 + c) % 40
                series.append(({"__name__": "http_requests_total", "handler": handler, "code": code, **base}, lambda k, rate=rate: float(rate * k)))
        for b, bound in enumerate(BOUNDS):
            series.append(({"__name__": "http_request_duration_seconds_bucket", "le": bound, **base}, lambda k, b=b: float((b + 1) * 3 * k)))
        for p in range(20):
            series.append(({"__name__": "unique_requests", "path": "/p/%d/%d" % (i, p), **base}, lambda k, i=i, p=p: ((k * 2654435761 + i * 97 + p) % 1000) / 8))
        series.append(({"__name__": "node_info", "version": "v%d" % (i % 5), **base}, lambda k: 1.0))
    return series


def hide_auxv():
    """Refuses prctl(PR_GET_AUXV) in the process and its children: its answer names the vDSO, which valgrind does not map."""
    pr_set_no_new_privs, pr_set_seccomp, seccomp_mode_filter = 38, 22, 2
    prctl_of_x86_64, pr_get_auxv, allow, refuse_einval = 157, 0x41555856, 0x7FFF0000, 0x00050000 | 22
    load, equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), (equal, 0, 3, prctl_of_x86_64), (load, 0, 0, 16), (equal, 0, 1, pr_get_auxv), (give, 0, 0, refuse_einval), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0) or libc.prctl(pr_set_seccomp, seccomp_mode_filter, filters, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


class Server:
    """One build below callgrind over an empty directory."""

    def __init__(self, binary, directory, more_flags):
        self.port = wire.free_port(random.randrange(20000, 30000))
        self.out = os.path.join(directory, "callgrind")
        flags = ["serve", "--data-dir", os.path.join(directory, "data"), "--http", "127.0.0.1:%d" % self.port, "--self-scrape=off", "--flush-delay=30s", "--flush-small-window=0", *more_flags]
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + self.out]
        self.log = open(os.path.join(directory, "log"), "wb")
        self.process = subprocess.Popen(valgrind + [binary] + flags, stdout=self.log, stderr=self.log, preexec_fn=hide_auxv)
        self.client = wire.Client("http://127.0.0.1:%d" % self.port, timeout=600)
        self.dumps = 0
        self.wait(READY_S, lambda: self.client.request("GET", "/-/ready")[0] == 200)

    def wait(self, seconds, is_done):
        end = time.monotonic() + seconds
        while True:
            try:
                if is_done():
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the server ended or was not ready in time; see " + self.log.name)
            time.sleep(0.5)

    def control(self, *arguments):
        subprocess.run(["callgrind_control", *arguments, str(self.process.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def counted(self, work):
        """Instructions of all threads while `work` runs."""
        self.control("-i", "on")
        work()
        self.control("-i", "off")
        self.control("-d")
        self.dumps += 1
        path = "%s.%d" % (self.out, self.dumps)
        self.wait(60, lambda: os.path.exists(path) and "totals:" in open(path, errors="replace").read())
        text = open(path, errors="replace").read()
        os.remove(path)
        return int(re.search(r"^totals: (\d+)", text, re.M).group(1))

    def write(self, body):
        status, _, answer = self.client.request("POST", "/api/v1/write", body, {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"})
        if status not in (200, 204):
            raise SystemExit("write: %s %s" % (status, answer[:300]))

    def query(self, expr, **times):
        path = "/api/v1/query_range" if "step" in times else "/api/v1/query"
        status, _, answer = self.client.request("GET", path + "?" + urllib.parse.urlencode({"query": expr, "nocache": "1", **times}))
        data = json.loads(answer)
        if status != 200 or not data["data"]["result"]:
            raise SystemExit("%s: %s %s" % (expr, status, answer[:300]))
        return data["data"]["result"]

    def remote_read(self, name, first_ms, last_ms):
        """Streams the samples of a metric."""
        matcher = wire.f_varint(1, 0) + wire.f_bytes(2, b"__name__") + wire.f_bytes(3, name.encode())
        query = wire.f_varint(1, first_ms) + wire.f_varint(2, last_ms) + wire.f_bytes(3, matcher)
        body = wire.snappy_literal(wire.f_bytes(1, query) + wire.f_bytes(2, b"\x01"))
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Read-Version": "0.1.0"}
        status, _, answer = self.client.request("POST", "/api/v1/read", body, headers)
        if status != 200 or len(answer) < 1000:
            raise SystemExit("remote read: %s %s" % (status, answer[:300]))

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def log_tail(self):
        return open(self.log.name, errors="replace").read()[-3000:]


def bodies(series, first_ms, steps, keep):
    """Compressed requests in order of time; `keep(series index, step)` selects samples."""
    for first in range(0, steps, STEPS_PER_REQUEST):
        for start in range(0, len(series), 500):
            part = []
            for idx in range(start, min(start + 500, len(series))):
                labels, value = series[idx]
                samples = [(first_ms + k * STEP_MS, value(k)) for k in range(first, min(first + STEPS_PER_REQUEST, steps)) if keep(idx, k)]
                if samples:
                    part.append((labels, samples))
            if part:
                yield wire.snappy_literal(wire.encode_rw1(part))


def is_late(idx, step, percent):
    return (idx * 7919 + step * 104729) % 100 < percent


def queries(first_ms, steps):
    end = (first_ms + steps * STEP_MS) / 1000 + 7
    span = {"start": first_ms / 1000 + 300, "end": end, "step": 15 if steps <= HEAD_STEPS else 60}
    join = 'sum by (version) (rate(http_requests_total{code="200"}[5m]) * on (instance) group_left (version) node_info)'
    return [
        ("sum_by", "sum by (job) (http_requests_total)", span), ("rate_by", "sum by (job, code) (rate(http_requests_total[5m]))", span),
        ("rate_now", "sum by (job) (rate(http_requests_total[5m]))", {"time": end}),
        ("quantile", "histogram_quantile(0.99, sum by (le, job) (rate(http_request_duration_seconds_bucket[5m])))", span),
        ("topk", "topk(10, rate(http_requests_total[5m]))", {"time": end}),
        ("one_instance", 'rate(http_requests_total{instance="10.0.0.7:9100"}[5m])', span),
        ("regex", 'sum by (handler) (rate(http_requests_total{code=~"5..",handler!~"/static|/health"}[5m]))', span),
        ("count_by", "count by (job) (http_requests_total)", {"time": end}),
        ("max_over_time", "max by (job) (max_over_time(unique_requests[5m]))", span), ("avg_by", "avg by (job) (unique_requests)", span),
        ("info_join", join, span), ("raw", "unique_requests", {"time": end}),
    ]


def access_file(path, count):
    """Writes an access file with so many principals; the token of the last one is its name."""
    with open(path, "w") as file:
        file.write("principals:\n")
        for i in range(count):
            token = hashlib.sha256(b"sender%d" % i).hexdigest()
            file.write("- {name: sender%d, token_sha256: %s, tenants: '*', scopes: [read, write, admin]}\n" % (i, token))
    return "sender%d" % (count - 1)


def measure(binary, now_ms, args, principals, figures):
    with tempfile.TemporaryDirectory(dir=args.dir) as directory:
        flags, headers = list(args.server_flag), {}
        if principals:
            path = os.path.join(directory, "access.yml")
            headers = {"Authorization": "Bearer " + access_file(path, principals)}
            flags.append("--access.file=" + path)
        server = Server(binary, directory, flags)
        server.client.headers.update(headers)
        try:
            run_cases(server, binary, now_ms, args, figures)
        except (OSError, ValueError, SystemExit) as error:
            print("%s: %s; end of its log:\n%s" % (binary, error, server.log_tail()), file=sys.stderr)
        finally:
            server.stop()


def run_cases(server, binary, now_ms, args, figures):
    series = corpus(args.instances)
    all_of = lambda idx, step: True

    def send(parts):
        for body in parts:
            server.write(body)

    def ask(place, first_ms, steps):
        for name, expr, times in queries(first_ms, steps):
            answer = server.query(expr, **times)
            count = server.counted(lambda: [server.query(expr, **times) for _ in range(args.rounds)])
            figures[place + " " + name] = (count / args.rounds, answer)

    block_ms = now_ms - 24 * 3_600_000
    block_ms -= block_ms % (2 * 3_600_000) - OFFSET_MS
    parts = list(bodies(series, block_ms, BLOCK_STEPS, all_of))
    report = lambda stage: print("%s: %s" % (binary, stage), file=sys.stderr)
    report("writes")
    figures["write first"] = (server.counted(lambda: send(parts[:len(series) // 500 + 1])), None)
    figures["write in order"] = (server.counted(lambda: send(parts[len(series) // 500 + 1:len(parts) // 4])), None)
    send(parts[len(parts) // 4:])
    report("flush")
    storage = lambda: json.loads(server.client.request("GET", "/api/v1/status/storage")[2])["data"]
    server.wait(FLUSH_S, lambda: storage()["headSeries"] == 0)
    report("queries of blocks")
    ask("blocks", block_ms, BLOCK_STEPS)
    last_ms = block_ms + BLOCK_STEPS * STEP_MS
    read = lambda: [server.remote_read("http_requests_total", block_ms, last_ms) for _ in range(args.rounds)]
    read()
    figures["blocks remote read"] = (server.counted(read) / args.rounds, None)
    head_ms = now_ms - HEAD_STEPS * STEP_MS - 60_000 + OFFSET_MS
    report("queries of the head")
    send(bodies(series, head_ms, HEAD_STEPS, all_of))
    ask("head", head_ms, HEAD_STEPS)
    late_ms = now_ms - 3_600_000 - LATE_STEPS * STEP_MS + OFFSET_MS
    report("late writes")
    renamed = [({**labels, "run": "late"}, value) for labels, value in series]
    for percent in 10, 50:
        named = [({**labels, "percent": str(percent)}, value) for labels, value in renamed]
        early = list(bodies(named, late_ms, LATE_STEPS, lambda idx, step: not is_late(idx, step, percent)))
        late = list(bodies(named, late_ms, LATE_STEPS, lambda idx, step: is_late(idx, step, percent)))
        send(early)
        figures["late %d %%" % percent] = (server.counted(lambda: send(late)), None)
        span = {"start": late_ms / 1000 + 300, "end": late_ms / 1000 + LATE_STEPS * 15, "step": 15}
        expr = 'sum by (job) (rate(http_requests_total{percent="%d"}[5m]))' % percent
        answer = server.query(expr, **span)
        figures["late %d %% query" % percent] = (server.counted(lambda: server.query(expr, **span)), answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="chronolith of the earlier commit")
    parser.add_argument("head", help="chronolith of the later commit")
    parser.add_argument("--instances", type=int, default=40, help="51 series each")
    parser.add_argument("--rounds", type=int, default=3, help="counted requests per query")
    parser.add_argument("--parallel", action="store_true", help="both builds at the same time")
    parser.add_argument("--server-flag", action="append", default=[], help="a flag of both servers, such as --block-encoding=prometheus")
    parser.add_argument("--principals", type=int, default=0, help="the second server has an access file with so many, and its client a token")
    parser.add_argument("--dir", help="where data directories go")
    args = parser.parse_args()
    now_ms = int(time.time() * 1000)
    found = [{}, {}]
    builds = zip((args.base, args.head), (0, args.principals), found)
    threads = [threading.Thread(target=measure, args=(binary, now_ms, args, principals, figures)) for binary, principals, figures in builds]
    for thread in threads:
        thread.start()
        if not args.parallel:
            thread.join()
    for thread in threads:
        thread.join()
    missing = set(found[0]) ^ set(found[1])
    print("%-24s %15s %15s %7s" % ("case", "base", "head", "ratio"))
    unequal = []
    for name, (count, answer) in found[0].items():
        if name in found[1]:
            other, other_answer = found[1][name]
            print("%-24s %15d %15d %7.3f" % (name, count, other, other / count))
            # topk and others list equal values in any order.
            if sorted(map(str, answer or [])) != sorted(map(str, other_answer or [])):
                unequal.append(name)
    if missing or unequal or not found[0]:
        raise SystemExit("answers differ: %s; cases of one build only: %s" % (unequal, sorted(missing)))


if __name__ == "__main__":
    main()
