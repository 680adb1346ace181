#!/usr/bin/env python3
"""History of recording rules: `rules backfill` against `promtool tsdb create-blocks-from rules`.

    backfill.py CHRONOLITH PROMETHEUS [--promtool BINARY] [--days 0.5] [--series 200] [--scrape 30] [--interval 60]
                [--rules 50] [--peer-rules 47] [--compare-days 1] [--kills 6] [--report FILE]

The server gets samples of the last days by remote write, oldest first; Prometheus gets them as blocks that
`export blocks` writes. Each tool evaluates the same rule file over them; the CPU of server and tool is compared.
promtool evaluates rules one by one, so with `--peer-rules` it takes the first ones and its CPU is counted for all.
Recorded values of the last `--compare-days` are compared bit for bit with range queries of Prometheus at the same
times, and with promtool's blocks, which Prometheus reads. Prometheus before 3.0 adds in another order, so that the
last digits may differ, and evaluates rules at other times. A chain of three rules is checked against the expressions
that it stands for. A second run has to write nothing, and a run over killed tools and servers, on a copy of the data,
has to record the same.
In full: `--days 30 --series 20000 --scrape 60 --peer-rules 10`, with a release build."""
import argparse
import json
import math
import os
import queue
import random
import re
import shutil
import struct
import subprocess
import threading
import time

import harness
from harness import wire

SAMPLES_PER_REQUEST = 400_000
CPU_RATIO_MIN = 10
METRICS = ("req_total", "err_total", "lat_seconds")
FORMS = [
    "sum by (%(by)s) (rate(req_total[5m]))",
    "sum by (%(by)s) (rate(err_total[5m])) / sum by (%(by)s) (rate(req_total[5m]))",
    "avg by (%(by)s) (lat_seconds)",
    "max by (%(by)s) (lat_seconds) - min by (%(by)s) (lat_seconds)",
    "sum by (%(by)s) (rate(err_total[5m]))",
    "quantile by (%(by)s) (0.9, lat_seconds)",
    "count by (%(by)s) (lat_seconds > 50)",
    "max by (%(by)s) (rate(req_total[5m]))",
    "sum by (%(by)s) (rate(err_total[5m])) > 0.5 * sum by (%(by)s) (rate(req_total[5m]))",
    "avg by (%(by)s) (avg_over_time(lat_seconds[10m]))",
]
BY = ("job", "zone", "job, zone", "shard", "job, shard")
CHAIN = [
    ("chain:1", "sum by (job) (rate(req_total[5m]))"),
    ("chain:2", "chain:1 * 2"),
    ("chain:3", "max by (job) (chain:2) + chain:1"),
]


def independent_rules(count):
    rules = [(form % {"by": by}) for by in BY for form in FORMS]
    return [("rule:%d" % idx, rules[idx % len(rules)]) for idx in range(count)]


def rule_file(rules, interval):
    lines = ["  - {record: '%s', expr: '%s'}" % rule for rule in rules]
    return "groups:\n- name: backfill\n  interval: %ds\n  rules:\n%s\n" % (interval, "\n".join(lines))


class History:
    """Samples of all series over a range, in requests of ascending time."""

    def __init__(self, series, start, end, scrape):
        self.times = range(start // scrape * scrape, end + 1, scrape)
        self.heads = []
        for idx in range(series):
            labels = {
                "__name__": METRICS[idx % len(METRICS)], "job": "j%d" % (idx % 7), "zone": "z%d" % (idx % 3),
                "shard": "s%d" % (idx % 10), "instance": "i%d" % idx,
            }
            labels = sorted((name.encode(), value.encode()) for name, value in labels.items())
            self.heads.append(b"".join(wire.f_bytes(1, wire.f_bytes(1, name) + wire.f_bytes(2, value)) for name, value in labels))
        self.count = len(self.heads) * len(self.times)
        # All values are small integers: a sample of 16 bytes, without its time, of which the varint has six bytes.
        self.packed = [b"\x12\x10\x09" + struct.pack("<d", value) + b"\x10" for value in range(8192)]

    def samples(self, idx, at, stamps):
        packed, steps = self.packed, range(at, at + len(stamps))
        if idx % len(METRICS) == 2:
            factor, first = idx % 7 + 1, idx * 37
            return [packed[(step * factor + first) % 101] + stamp for step, stamp in zip(steps, stamps)]
        # A counter that begins again from time to time.
        period, factor, noise = 400 + idx % 100, idx % 13 + 1, idx % 5 + 2
        return [packed[step % period * factor + step % noise] + stamp for step, stamp in zip(steps, stamps)]

    def bodies(self):
        steps = max(1, SAMPLES_PER_REQUEST // len(self.heads))
        for at in range(0, len(self.times), steps):
            stamps = [wire.varint(seconds * 1000) for seconds in self.times[at:at + steps]]
            size = 18 * len(stamps)
            body = []
            for idx, head in enumerate(self.heads):
                body.append(b"\x0a" + wire.varint(len(head) + size) + head)
                body.extend(self.samples(idx, at, stamps))
            yield wire.snappy_literal(b"".join(body))

    def send(self, server):
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        client = wire.Client("http://127.0.0.1:%d" % server.port, timeout=300)
        # The next body is made while the server reads this one.
        bodies = queue.Queue(maxsize=2)

        def make():
            for body in self.bodies():
                bodies.put(body)
            bodies.put(None)

        threading.Thread(target=make, daemon=True).start()
        while (body := bodies.get()) is not None:
            for attempt in range(100):
                status, _, text = client.request("POST", "/api/v1/write", body, headers)
                if status // 100 == 2:
                    break
                # A full head makes room in seconds.
                assert status in (429, 503) and attempt < 99, (status, text[:200])
                time.sleep(2)


class Tool:
    """A run of a tool, with its CPU."""

    def __init__(self, command, directory, log):
        self.log = log
        with open(log, "ab") as file:
            self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=file)
        harness.PROCESSES.append(self.process)

    def end(self):
        """Output, exit code and CPU in seconds."""
        output = self.process.stdout.read().decode()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return output, self.process.returncode, usage.ru_utime + usage.ru_stime


class Kit:
    def __init__(self, options, report):
        self.options, self.report = options, report
        self.directory = harness.work_directory()
        self.end_s = int(time.time()) // 3600 * 3600
        self.start_s = self.end_s - int(options.days * 86400)
        self.figures = {"days": options.days, "series": options.series, "scrape_s": options.scrape}
        independent = independent_rules(options.rules - len(CHAIN))
        self.names = [name for name, _ in independent]
        self.exprs = dict(independent)
        # The path is the same for both: it decides the times of rounds.
        self.rules = os.path.join(self.directory, "rules.yml")
        self.independent = os.path.join(self.directory, "independent", "rules.yml")
        self.peer_names = self.names[:options.peer_rules]
        os.mkdir(os.path.dirname(self.independent))
        with open(self.independent, "w") as file:
            file.write(rule_file(independent[:options.peer_rules], options.interval))
        with open(self.rules, "w") as file:
            file.write(rule_file(independent + CHAIN, options.interval))

    def start(self):
        config = os.path.join(self.directory, "prometheus.yml")
        with open(config, "w") as file:
            file.write("global: {scrape_interval: 1m}\n")
        port = wire.free_port(29700)
        self.ours = self.ours_in(self.directory, port)
        self.peer = harness.prometheus(
            self.options.prometheus, self.directory, wire.free_port(29750), config, "--storage.tsdb.retention.time=5y", "--query.max-samples=500000000")
        self.ours.start()

    def start_peer(self):
        self.peer.start()
        version = self.peer.get("/api/v1/status/buildinfo")["version"]
        self.is_older = int(version.split(".")[0]) < 3
        harness.note("Prometheus " + version)

    def ours_in(self, directory, port):
        return harness.chronolith(self.options.chronolith, directory, port, "--web.enable-admin-api", "--retention", "5y")

    def fill(self):
        history = History(self.options.series, self.start_s - 900, self.end_s, self.options.scrape)
        began = time.time()
        history.send(self.ours)
        harness.note("%d samples written in %.0f s" % (history.count, time.time() - began))
        self.figures["samples"] = history.count

    def copy(self):
        """A copy of the data before any backfill, and the same samples as blocks of Prometheus."""
        self.ours.stop()
        copied = os.path.join(self.directory, "copy")
        shutil.copytree(os.path.join(self.directory, "ours"), os.path.join(copied, "ours"))
        blocks = os.path.join(self.directory, "prometheus")
        os.makedirs(blocks, exist_ok=True)
        began = time.time()
        subprocess.run(
            [self.options.chronolith, "export", "blocks", "--encoding", "prometheus", "--out", blocks, "--data-dir", os.path.join(copied, "ours")],
            check=True, stdout=subprocess.DEVNULL)
        harness.note("blocks for Prometheus: %.0f s" % (time.time() - began))
        self.ours.start()
        return copied

    def command(self, server, *more):
        return [
            self.options.chronolith, "rules", "backfill", "--url", "http://127.0.0.1:%d" % server.port, "--start", str(self.start_s),
            "--end", str(self.end_s), "--as", self.independent, "--progress-file", os.path.join(self.directory, "p.json"), *more, self.rules,
        ]

    def backfill(self, server, *more):
        """Totals, CPU of server and tool, and seconds."""
        pid, began = server.process.pid, time.time()
        before = harness.cpu_seconds(pid)
        output, code, tool_cpu = Tool(self.command(server, *more), self.directory, self.directory + "/tool.log").end()
        server_cpu = harness.cpu_seconds(pid) - before
        with open(self.directory + "/tool.log", encoding="utf-8") as file:
            assert code == 0, (code, output, file.read()[-2000:])
        found = re.match(r"(\d+) rounds of rules, (\d+) series: (\d+) samples (?:would be )?added, (\d+) replaced, (\d+) removed, (\d+) equal", output)
        assert found, output
        names = ("rounds", "series", "added", "replaced", "removed", "equal")
        return dict(zip(names, map(int, found.groups()))), server_cpu, tool_cpu, time.time() - began

    def measure_ours(self):
        dry, *_ = self.backfill(self.ours, "--dry-run", "--group", "backfill")
        self.report.expect("a dry run writes nothing", self.ours.value('count({__name__=~"rule:.*"})', time=self.end_s) is None)
        totals, server_cpu, tool_cpu, seconds = self.backfill(self.ours)
        harness.note("ours: %s, CPU %.2f s of the server and %.2f s of the tool, %.1f s" % (totals, server_cpu, tool_cpu, seconds))
        self.figures["ours"] = {"cpu_s": server_cpu + tool_cpu, "seconds": seconds, **totals}
        self.report.expect("all rules have history", totals["added"] > 0 and totals["replaced"] == totals["removed"] == totals["equal"] == 0, totals)
        self.report.expect("a dry run counts what rules over stored series write", 0 < dry["added"] <= totals["added"], (dry, totals))
        again, *_ = self.backfill(self.ours)
        self.report.expect("a second run writes 0 samples", again["added"] == again["replaced"] == again["removed"] == 0 and again["equal"] == totals["added"], again)

    def measure_peer(self):
        output = os.path.join(self.directory, "blocks")
        command = [
            self.options.promtool, "tsdb", "create-blocks-from", "rules", "--url", "http://127.0.0.1:%d" % self.peer.port, "--start",
            str(self.start_s), "--end", str(self.end_s), "--output-dir", output, self.independent,
        ]
        pid, began = self.peer.process.pid, time.time()
        before = harness.cpu_seconds(pid)
        text, code, tool_cpu = Tool(command, self.directory, self.directory + "/promtool.log").end()
        server_cpu, seconds = harness.cpu_seconds(pid) - before, time.time() - began
        assert code == 0, text
        rules = len(self.peer_names)
        harness.note("promtool: %d rules, CPU %.2f s of the server and %.2f s of the tool, %.1f s" % (rules, server_cpu, tool_cpu, seconds))
        # Rules that it has not evaluated, and the chain, of which it evaluates none over the others, count as the average one.
        cpu = (server_cpu + tool_cpu) * (len(self.names) + len(CHAIN)) / rules
        self.figures["promtool"] = {"cpu_s": cpu, "seconds": seconds, "rules": rules}
        ratio = cpu / self.figures["ours"]["cpu_s"]
        self.figures["cpu_ratio"] = ratio
        if self.options.days * self.options.series >= 1000:
            self.report.expect("CPU of promtool and its server >= %d times ours" % CPU_RATIO_MIN, ratio >= CPU_RATIO_MIN, "%.1f" % ratio)
        harness.note("CPU of promtool and its server: %.1f times ours" % ratio)
        return output

    def samples(self, server, name, days=None):
        """Samples of a recorded metric by labels: time to value; of the last `days`, or of `--compare-days`."""
        found = {}
        start = max(self.start_s, self.end_s - int((days or self.options.compare_days) * 86400))
        for end in range(self.end_s, start, -86400):
            window = min(86400, end - start)
            result = server.get("/api/v1/query", query="%s[%ds]" % (name, window), time=end)["result"]
            for series in result:
                values = found.setdefault(tuple(sorted(series["metric"].items())), {})
                values.update((at, value) for at, value in series["values"])
        return found

    def queried(self, name, recorded):
        """Results of a rule in Prometheus at the times of recorded samples: labels without the name to values."""
        times = sorted({at for values in recorded.values() for at in values})
        found, step = {}, self.options.interval
        for first in range(0, len(times), 5000):
            part = times[first:first + 5000]
            result = self.peer.get("/api/v1/query_range", query=self.exprs[name], start=part[0], end=part[-1], step=step)["result"]
            for series in result:
                values = found.setdefault(tuple(sorted(series["metric"].items())), {})
                values.update((at, value) for at, value in series["values"])
        return found

    def is_same(self, own, other):
        if own == other or None in (own, other):
            return own == other
        return self.is_older and math.isclose(float(own), float(other), rel_tol=1e-12)

    def differences(self, name, ours, theirs):
        for labels in sorted(set(ours) | set(theirs)):
            own, other = ours.get(labels, {}), theirs.get(labels, {})
            wrong = [(at, own.get(at), other.get(at)) for at in sorted(set(own) | set(other)) if not self.is_same(own.get(at), other.get(at))]
            if wrong:
                yield "%s %s: %d of %d, first %s" % (name, dict(labels), len(wrong), len(other), wrong[0])

    def compare_queries(self):
        differences, count = [], 0
        for name in self.names:
            ours = self.samples(self.ours, name)
            plain = {tuple(pair for pair in labels if pair[0] != "__name__"): values for labels, values in ours.items()}
            count += sum(map(len, ours.values()))
            differences.extend(self.differences(name, plain, self.queried(name, ours)))
        self.report.check("values of Prometheus at the same times", differences, count)

    def compare_blocks(self, blocks):
        # A start with blocks up to now drops what the head has before their end, so no query comes after it.
        self.peer.stop()
        for block in os.listdir(blocks):
            shutil.move(os.path.join(blocks, block), os.path.join(self.directory, "prometheus"))
        self.peer.start()
        differences, count, is_other = [], 0, False
        for name in self.peer_names:
            ours, theirs = self.samples(self.ours, name), self.samples(self.peer, name)
            at_ours = {at for values in ours.values() for at in values}
            is_other |= not any(at in at_ours for values in theirs.values() for at in values)
            count += sum(map(len, theirs.values()))
            differences.extend(self.differences(name, ours, theirs))
        if is_other:
            harness.note("promtool has evaluated at other times: %d samples of its blocks are not compared" % count)
        else:
            self.report.check("values of promtool's blocks", differences, count)

    def check_chain(self):
        chain = {name: self.samples(self.ours, name) for name, _ in CHAIN}
        by_job = {name: {dict(labels)["job"]: values for labels, values in series.items()} for name, series in chain.items()}
        wrong, count = [], 0
        for job, first in by_job["chain:1"].items():
            for at, value in first.items():
                second, third = by_job["chain:2"][job].get(at), by_job["chain:3"][job].get(at)
                count += 1
                if second is None or third is None or float(second) != 2 * float(value) or float(third) != float(second) + float(value):
                    wrong.append((job, at, value, second, third))
        self.report.check("a chain of three in one run", wrong, count)

    def kill_and_resume(self, copied):
        port = wire.free_port(29800)
        server = self.ours_in(copied, port).start()
        rng, runs = random.Random(self.options.seed), 0
        while True:
            tool = Tool(self.command(server), self.directory, self.directory + "/tool.log")
            runs += 1
            victim = None
            if runs <= self.options.kills:
                # Another moment each time: after the first chunk, and later.
                harness.wait_until(lambda: tool.process.poll() is not None or os.path.exists(self.directory + "/p.json"), 600)
                time.sleep(rng.random() * 2 * self.figures["ours"]["seconds"] / self.options.kills)
                victim = rng.choice(["tool", "server"])
                if victim == "tool":
                    tool.process.kill()
                else:
                    server.kill()
            output = tool.process.stdout.read().decode()
            code = tool.process.wait()
            if victim == "server":
                server.start()
            if code == 0:
                break
            assert victim, (code, output)
        harness.note("%d runs" % runs)
        differences, count = [], 0
        for name in self.names + [name for name, _ in CHAIN]:
            days = self.options.days
            whole, resumed = self.samples(self.ours, name, days), self.samples(server, name, days)
            count += sum(map(len, whole.values()))
            if whole != resumed:
                differences.append("%s: %d and %d samples" % (name, sum(map(len, whole.values())), sum(map(len, resumed.values()))))
        self.report.check("killed and resumed: the same samples", differences, count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chronolith")
    parser.add_argument("prometheus")
    parser.add_argument("--promtool", help="default: next to PROMETHEUS")
    parser.add_argument("--days", type=float, default=0.5)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--scrape", type=int, default=30, help="seconds between samples")
    parser.add_argument("--interval", type=int, default=60, help="seconds between rounds")
    parser.add_argument("--rules", type=int, default=50)
    parser.add_argument("--peer-rules", type=int, default=47, help="rules that promtool evaluates")
    parser.add_argument("--compare-days", type=float, default=1, help="days at the end whose values are compared")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report")
    options = parser.parse_args()
    options.promtool = options.promtool or os.path.join(os.path.dirname(options.prometheus), "promtool")
    options.chronolith, options.prometheus = os.path.abspath(options.chronolith), os.path.abspath(options.prometheus)
    report = harness.Report()
    kit = Kit(options, report)
    kit.start()
    kit.fill()
    copied = kit.copy()
    kit.start_peer()
    kit.measure_ours()
    blocks = kit.measure_peer()
    kit.compare_queries()
    kit.compare_blocks(blocks)
    kit.check_chain()
    kit.kill_and_resume(copied)
    if options.report:
        with open(options.report, "w") as file:
            json.dump(kit.figures, file, indent=1)
    report.end()


if __name__ == "__main__":
    main()
