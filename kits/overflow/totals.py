#!/usr/bin/env python3
"""Totals beyond a limit of series: a server that folds is compared with one without a limit.

    totals.py BINARY [--series 1000000] [--limit 10000] [--rounds 10]

Both servers get the same counters, native histograms (both with resets) and gauges by remote write. The first `--limit` series come
first, so they are series of their own on both. The server that folds is killed in between, and its last
requests are sent again, as a sender does that got no answer. Shown:
- sum(rate()) of each counter, count, sum and 0.9 quantile of sum(rate()) of each native histogram, and sum()
  of each gauge within 1 %, and equal for the series below the limit,
- no sample is rejected,
- resident memory of the folding server beyond what it has with the series below the limit, at most 40 MB,
- CPU per folded sample, at most 1.2 times that of a known series of the other server."""
import argparse
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

METRICS = 20
# Metrics of native histograms: 5 % of the series.
HISTOGRAMS = {19}
BUCKETS = 12
STEP_MS = 15_000
BATCH = 5000
DIFFERENCE_MAX = 0.01
MEMORY_MAX = 40 << 20
CPU_MAX = 1.2


def name_of(metric):
    return ("h%02d" if metric in HISTOGRAMS else "c%02d_total" if metric % 2 else "g%02d") % metric


def texts_of(metric):
    """Queries of the totals of a metric: %s are selector and range."""
    if metric in HISTOGRAMS:
        rate = "sum(rate(%s[%ds]))"
        return ["histogram_count(" + rate + ")", "histogram_sum(" + rate + ")", "histogram_quantile(0.9, " + rate + ")"]
    return ["sum(rate(%s[%ds]))" if metric % 2 else "sum(%s)"]


def histogram(value):
    """A native histogram without its time, all of whose counts grow with `value`."""
    counts = [value * (BUCKETS - idx) // BUCKETS for idx in range(BUCKETS)]
    deltas = b"".join(wire.varint(wire.zigzag(count - before)) for before, count in zip([0] + counts, counts))
    spans = wire.f_varint(1, wire.zigzag(-4)) + wire.f_varint(2, BUCKETS)
    body = wire.f_varint(1, sum(counts)) + wire.f_double(3, value * 1.5, True) + wire.f_varint(4, wire.zigzag(3)) + wire.f_double(5, 2.0 ** -128)
    return body + wire.f_bytes(11, spans) + wire.f_bytes(12, deltas)


class Load:
    """Series with their encoded labels and last values."""

    def __init__(self, count, limit):
        self.random = random.Random(1)
        self.heads, self.values = [], []
        self.histograms = {}
        for idx in range(count):
            metric = idx % METRICS
            labels = {"__name__": name_of(metric), "early": str(int(idx < limit)), "id": "%08x" % idx, "instance": "10.0.%d.%d:9100" % (idx >> 8 & 255, idx & 255), "job": "load"}
            self.heads.append(b"".join(wire.f_bytes(1, wire.f_bytes(1, key) + wire.f_bytes(2, labels[key])) for key in sorted(labels)))
            self.values.append(self.random.randrange(1000))

    def step(self):
        for idx in range(len(self.values)):
            if idx % METRICS % 2:
                # A reset now and then, as of a process that starts again.
                is_reset = self.random.random() < 0.002
                self.values[idx] = self.random.randrange(5) if is_reset else self.values[idx] + idx % 7 + 1
            else:
                self.values[idx] = self.random.randrange(1000)

    def bodies(self, time_ms, first, end):
        after = b"\x10" + wire.varint(time_ms)
        at = wire.f_varint(15, time_ms)
        for start in range(first, end, BATCH):
            out = []
            for idx in range(start, min(start + BATCH, end)):
                if idx % METRICS in HISTOGRAMS:
                    body = self.histograms.get(self.values[idx])
                    if body is None:
                        body = self.histograms.setdefault(self.values[idx], histogram(self.values[idx]))
                    series = self.heads[idx] + wire.f_bytes(4, body + at)
                else:
                    sample = b"\x09" + struct.pack("<d", self.values[idx]) + after
                    series = self.heads[idx] + b"\x12" + wire.varint(len(sample)) + sample
                out.append(b"\x0a" + wire.varint(len(series)) + series)
            yield wire.snappy(b"".join(out))


class Server:
    def __init__(self, binary, directory, flags):
        self.port = wire.free_port(random.randrange(20000, 30000))
        self.command = [binary, "serve", "--data-dir", directory, "--http", "127.0.0.1:%d" % self.port, "--self-scrape", "off", *flags]
        self.log = open(directory + ".log", "ab")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        self.client = wire.Client("http://127.0.0.1:%d" % self.port)
        assert self.client.wait_ready(), "not ready, see " + self.log.name

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def send(self, body):
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        status, _, text = self.client.request("POST", "/api/v1/write", body, headers)
        return status, text

    def query(self, text, at_ms):
        status, answer = self.client.api("/api/v1/query", {"query": text, "time": at_ms / 1000, "nocache": 1})
        assert status == 200, answer
        result = answer["data"]["result"]
        return float(result[0]["value"][1]) if result else 0.0

    def cpu(self):
        fields = open("/proc/%d/stat" % self.process.pid).read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        for line in open("/proc/%d/status" % self.process.pid):
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    passed, failed = 0, 0

    def check(is_right, text):
        nonlocal passed, failed
        passed, failed = passed + is_right, failed + (not is_right)
        print(("ok     " if is_right else "FAILED ") + text, flush=True)

    load = Load(options.series, options.limit)
    with tempfile.TemporaryDirectory() as directory:
        fold_flags = ["--series-limit", str(options.limit), "--series-overflow", "fold", "--overflow-series-limit", str(options.series)]
        servers = []
        try:
            whole = Server(options.binary, os.path.join(directory, "whole"), [])
            servers.append(whole)
            fold = Server(options.binary, os.path.join(directory, "fold"), fold_flags)
            servers.append(fold)
            start_ms = int(time.time() * 1000) // STEP_MS * STEP_MS - options.rounds * STEP_MS
            rejected, cpu = 0, {}
            for number in range(options.rounds):
                load.step()
                at_ms = start_ms + number * STEP_MS
                # The series below the limit come first and alone once.
                for part in [(0, options.limit), (options.limit, options.series)]:
                    before = {server: server.cpu() for server in servers}
                    bodies = list(load.bodies(at_ms, *part))
                    for body in bodies:
                        for server in servers:
                            status, text = server.send(body)
                            rejected += status != 204
                            if status != 204 and rejected < 3:
                                print(status, text[:300])
                    if part[0] and number >= 2:
                        for server in servers:
                            cpu.setdefault(server, []).append(server.cpu() - before[server])
                    if number == 0 and part[0] == 0:
                        small = fold.memory()
                if number == options.rounds // 2:
                    large = fold.memory()
                    # The last requests were acknowledged, and are sent again all the same.
                    fold.kill()
                    began = time.monotonic()
                    fold.start()
                    print("killed and ready again after %.1f s" % (time.monotonic() - began))
                    for body in bodies[-20:]:
                        rejected += fold.send(body)[0] != 204
                print("round %d of %d: %.0f MB and %.0f MB" % (number + 1, options.rounds, whole.memory() / 1e6, fold.memory() / 1e6), flush=True)
            at_ms = start_ms + (options.rounds - 1) * STEP_MS
            # Without the first two steps: rate() extrapolates a counter that begins at 0 in its window less.
            range_s = (options.rounds - 2) * STEP_MS // 1000
            worst, unequal = 0.0, []
            for metric, text in [(metric, text) for metric in range(METRICS) for text in texts_of(metric)]:
                name = name_of(metric)
                filled = lambda selector: text % ((selector, range_s) if "[" in text else selector)
                want, found = (server.query(filled(name), at_ms) for server in servers)
                worst = max(worst, abs(found - want) / abs(want))
                if abs(found - want) > DIFFERENCE_MAX * abs(want):
                    print(filled(name), want, found)
                early = [server.query(filled(name + '{early="1"}'), at_ms) for server in servers]
                if early[0] != early[1]:
                    unequal.append((filled(name), early))
            check(worst <= DIFFERENCE_MAX, "totals of %d metrics differ by at most %.4f %%" % (METRICS, worst * 100))
            check(not unequal, "series below the limit are equal %s" % unequal[:2])
            check(rejected == 0, "%d requests were refused" % rejected)
            check(large - small <= MEMORY_MAX, "memory %.1f MB with %d series, %.1f MB with %d folded ones" % (small / 1e6, options.limit, large / 1e6, options.series - options.limit))
            of = {server: sorted(times)[len(times) // 2] for server, times in cpu.items()}
            per_sample = [of[server] * 1e6 / (options.series - options.limit) for server in servers]
            check(per_sample[1] <= CPU_MAX * per_sample[0], "CPU per sample: %.2f us known series, %.2f us folded" % tuple(per_sample))
        finally:
            for server in servers:
                server.kill()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
