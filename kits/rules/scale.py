#!/usr/bin/env python3
"""Many rules over many series, or many rules over the same series: missed rounds, lateness, memory and CPU.

    scale.py CHRONOLITH [--prometheus BINARY] [--rules 10000] [--groups 500] [--series 200000] [--interval 60]
             [--minutes 5] [--dashboards 0] [--report FILE]
    scale.py CHRONOLITH --sharing [--prometheus BINARY] [--rules 50] [--series 100000] [--minutes 3] [--report FILE]

Both servers get the same samples every 15 s by remote write. Each phase lasts `--minutes`: the first without
rules, so that the CPU of writes and clients is known and taken off; then with them. CPU is that of the process
(/proc/PID/stat). With `--dashboards N`, N clients refresh three wide graphs every 15 s in all phases, and another
one asks a small query 20 times a second, whose times are compared between the phases.
With `--sharing`, the phases are: without rules, all rules as one group, each rule as a group of its own; each rule
reads the same three metrics. Prometheus has the rules as one group. A release build is needed for the full sizes."""
import argparse
import os
import struct
import subprocess
import threading
import time

import harness
from harness import wire

WRITE_SECONDS = 15
HISTORY_SECONDS = 360
SERIES_PER_REQUEST = 10_000
RSS_MIB_MAX = 200
LATE_SECONDS_MAX = 5
METRICS = ("req_total", "err_total", "lat_seconds", "mem_bytes")

# Rules of a group over the series of its shard; a group takes as many as it needs, and begins again.
SHARD_RULES = [
    "{record: 'req:rate', expr: 'sum by (job) (rate(req_total{shard=\"%(g)d\"}[5m]))'}",
    "{record: 'err:rate', expr: 'sum by (job) (rate(err_total{shard=\"%(g)d\"}[5m]))'}",
    "{record: 'err:ratio', expr: 'err:rate{shard=\"%(g)d\"} / req:rate{shard=\"%(g)d\"}'}",
    "{record: 'mem:max', expr: 'max by (job) (mem_bytes{shard=\"%(g)d\"})'}",
    "{record: 'lat:avg', expr: 'avg by (job) (lat_seconds{shard=\"%(g)d\"})'}",
    "{record: 'lat:q90', expr: 'quantile by (job) (0.9, lat_seconds{shard=\"%(g)d\"})'}",
    "{record: 'mem:top', expr: 'topk(3, mem_bytes{shard=\"%(g)d\"})'}",
    "{record: 'lat:max', expr: 'sum by (job) (max_over_time(lat_seconds{shard=\"%(g)d\"}[5m]))'}",
    "{record: 'mem:count', expr: 'count by (job) (mem_bytes{shard=\"%(g)d\"} > 50)'}",
    "{alert: 'Errors%(n)d', expr: 'err:ratio{shard=\"%(g)d\"} > 0.9', for: 5m, annotations: {summary: '{{ $labels.job }} has {{ $value | humanizePercentage }}'}}",
    "{alert: 'Memory%(n)d', expr: 'mem_bytes{shard=\"%(g)d\"} > 96', for: 1m, labels: {severity: page}, annotations: {summary: '{{ $labels.instance }}'}}",
    "{alert: 'Slow%(n)d', expr: 'lat:avg{shard=\"%(g)d\"} > 99', keep_firing_for: 5m}",
]

SHARED_RULES = [
    "sum by (%(by)s) (rate(req_total[5m]))",
    "sum by (%(by)s) (rate(err_total[5m])) / sum by (%(by)s) (rate(req_total[5m]))",
    "avg by (%(by)s) (lat_seconds)",
    "max by (%(by)s) (lat_seconds) - min by (%(by)s) (lat_seconds)",
    "sum by (%(by)s) (rate(err_total[5m]))",
    "quantile by (%(by)s) (0.9, lat_seconds)",
    "count by (%(by)s) (lat_seconds > 50)",
    "sum by (%(by)s) (rate(req_total[5m]) * on (shard, job, instance) lat_seconds)",
    "sum by (%(by)s) (rate(err_total[5m])) > 0.5 * sum by (%(by)s) (rate(req_total[5m]))",
    "topk by (%(by)s) (1, rate(req_total[5m]))",
]
SHARED_BY = ("job", "shard", "job, shard", "zone", "zone, job")


class Load:
    """Remote-write requests whose values and times are replaced in place."""

    def __init__(self, series):
        self.requests, body, places = [], bytearray(), []
        for idx, labels in enumerate(series):
            head = b"".join(wire.f_bytes(1, wire.f_bytes(1, name) + wire.f_bytes(2, labels[name])) for name in sorted(labels))
            # A sample of 16 bytes: a value, and a time whose varint has six bytes.
            message = head + b"\x12\x10\x09" + bytes(8) + b"\x10" + bytes(6)
            body += b"\x0a" + wire.varint(len(message)) + message
            places.append((len(body) - 15, idx, labels["__name__"].endswith("_total")))
            if len(places) == SERIES_PER_REQUEST:
                self.requests.append((body, places))
                body, places = bytearray(), []
        if places:
            self.requests.append((body, places))

    def bodies(self, at_seconds):
        stamp = wire.varint(at_seconds * 1000)
        assert len(stamp) == 6
        step = at_seconds // WRITE_SECONDS
        for body, places in self.requests:
            for place, idx, is_counter in places:
                # Counters grow by 1 to 13 per step, gauges are between 0 and 100.
                value = (step % 100_000) * (idx % 13 + 1) + step % (idx % 5 + 2) if is_counter else (step * (idx % 7 + 1) + idx * 37) % 101
                struct.pack_into("<d", body, place, value)
                body[place + 9:place + 15] = stamp
            yield wire.snappy_literal(bytes(body))


class Writer(threading.Thread):
    """Sends each step to all servers at its time."""

    def __init__(self, load, servers):
        super().__init__(daemon=True)
        self.load, self.late = load, []
        self.clients = [(server.name, wire.Client("http://127.0.0.1:%d" % server.port, timeout=120)) for server in servers]
        self.next = int(time.time()) // WRITE_SECONDS * WRITE_SECONDS - HISTORY_SECONDS

    def step(self):
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        for body in self.load.bodies(self.next):
            for name, client in self.clients:
                status, _, text = client.request("POST", "/api/v1/write", body, headers)
                assert status // 100 == 2, (name, status, text[:200])
        self.next += WRITE_SECONDS

    def history(self):
        while self.next < time.time():
            self.step()

    def run(self):
        while True:
            time.sleep(max(0, self.next - time.time()))
            self.step()
            self.late.append(time.time() - self.next + WRITE_SECONDS)


class SmallQueries(threading.Thread):
    def __init__(self, server):
        super().__init__(daemon=True)
        self.client, self.seconds, self.failures = wire.Client("http://127.0.0.1:%d" % server.port), [], 0

    def run(self):
        due = time.time()
        while True:
            # The time from when it was due: a query that waits for the one before counts.
            time.sleep(max(0, due - time.time()))
            try:
                status, _ = self.client.api("/api/v1/query", {"query": 'sum by (job) (mem_bytes{shard="0"}) or sum by (job) (lat_seconds{shard="0"})'})
            except OSError:
                # The server ends with the kit.
                return
            self.failures += status != 200
            self.seconds.append(time.time() - due)
            due = max(due + 0.05, time.time() - 1)


class Dashboards:
    """Clients that refresh three wide graphs every 15 s each."""

    def __init__(self, server, count):
        self.server, self.count, self.seconds, self.failures = server, count, [], 0

    def start(self):
        for idx in range(self.count):
            threading.Thread(target=self.run, args=(15 * idx / self.count,), daemon=True).start()

    def run(self, pause):
        time.sleep(pause)
        client = wire.Client("http://127.0.0.1:%d" % self.server.port, timeout=120)
        while True:
            begun = time.time()
            for query in ("sum by (job) (rate(req_total[5m]))", "avg by (job) (lat_seconds)", "sum by (job) (rate(err_total[2m]))"):
                end = int(time.time())
                status, _ = client.api("/api/v1/query_range", {"query": query, "start": end - 300, "end": end, "step": 15, "nocache": "1"})
                self.failures += status != 200
            self.seconds.append(time.time() - begun)
            time.sleep(max(0, begun + 15 - time.time()))


class Rounds(threading.Thread):
    """Looks at the groups: how late each round starts. The time of a round is that of its samples."""

    def __init__(self, server, interval):
        super().__init__(daemon=True)
        self.server, self.interval = server, interval
        self.client = wire.Client("http://127.0.0.1:%d" % server.port, timeout=60)
        self.late, self.offsets, self.is_ended = {}, {}, False

    def run(self):
        while not self.is_ended:
            status, answer = self.client.api("/api/v1/query", {"query": "max by (shard) (timestamp(req:rate))"})
            for series in answer["data"]["result"] if status == 200 else []:
                self.offsets["g" + series["metric"]["shard"]] = float(series["value"][1]) % self.interval
            status, answer = self.client.api("/api/v1/rules", {"exclude_alerts": "true"}, post=False)
            for group in answer["data"]["groups"] if status == 200 else []:
                started = harness.milliseconds(group["lastEvaluation"]) / 1000
                if started > 0 and group["name"] in self.offsets:
                    self.late[group["name"], started] = (started - self.offsets[group["name"]] + 0.01) % self.interval
            time.sleep(self.interval / 10)


class Phase:
    """CPU, memory and clients over a time."""

    def __init__(self, servers, clients, minutes):
        before = [self.figures(server) for server in servers]
        counts = {name: len(client.seconds) for name, client in clients.items()}
        for server in servers:
            harness.reset_peak(server.process.pid)
        begun = time.time()
        time.sleep(minutes * 60)
        self.seconds = time.time() - begun
        after = [self.figures(server) for server in servers]
        self.used = {server.name: {name: now[name] - then[name] for name in now} for server, then, now in zip(servers, before, after)}
        self.rss = {server.name: harness.rss_mib(server.process.pid) for server in servers}
        self.times = {name: client.seconds[counts[name]:] for name, client in clients.items()}

    @staticmethod
    def figures(server):
        prefix = "chronolith" if server.name == "ours" else "prometheus"
        figures = {"cpu": harness.cpu_seconds(server.process.pid)}
        for name in ("rule_group_iterations_total", "rule_group_iterations_missed_total", "rule_evaluations_total", "rule_evaluation_failures_total"):
            figures[name] = server.metric_sum("%s_%s" % (prefix, name))
        return figures

    def cores(self, name):
        return self.used[name]["cpu"] / self.seconds


def sharded_series(series_count, group_count):
    for idx in range(series_count):
        group, of_group = idx % group_count, idx // group_count
        yield {
            "__name__": METRICS[of_group % 4], "shard": "%d" % group, "job": "job%d" % (of_group // 4 % 5),
            "instance": "host-%d-%d:9100" % (group, of_group // 4), "zone": "zone%d" % (of_group // 4 % 3),
        }


def shared_series(series_count):
    for idx in range(series_count):
        host = idx // 3
        yield {
            "__name__": METRICS[idx % 3], "shard": "%d" % (host % 50), "job": "job%d" % (host % 7), "instance": "host-%d:9100" % host,
            "zone": "zone%d" % (host % 3),
        }


def sharded_rules(args):
    per_group = args.rules // args.groups
    files = []
    for first in range(0, args.groups, 100):
        parts = ["groups:\n"]
        for g in range(first, min(first + 100, args.groups)):
            parts.append("- name: g%d\n  interval: %ds\n  labels: {shard: '%d'}\n  rules:\n" % (g, args.interval, g))
            for n in range(per_group):
                rule = SHARD_RULES[n % len(SHARD_RULES)] % {"g": g, "n": n}
                if n >= len(SHARD_RULES):
                    # A further copy has a name of its own and reads what the first one recorded.
                    rule = rule.replace("{record: '", "{record: 'n%d:" % n)
                parts.append("  - %s\n" % rule)
        files.append("".join(parts))
    return files


def shared_rules(args, per_group):
    expressions = [SHARED_RULES[n % len(SHARED_RULES)] % {"by": SHARED_BY[n // len(SHARED_RULES) % len(SHARED_BY)]} for n in range(args.rules)]
    parts = ["groups:\n"]
    for n, expr in enumerate(expressions):
        if n % per_group == 0:
            parts.append("- name: of%d-%d\n  interval: %ds\n  rules:\n" % (per_group, n, args.interval))
        parts.append("  - {record: 'shared:%d:%d', expr: '%s'}\n" % (per_group, n, expr))
    return ["".join(parts)]


def put_rules(servers, directories, files):
    """Replaces the rule files of the servers. Prometheus needs its groups' names in other files alike."""
    for server, directory in zip(servers, directories):
        for name in os.listdir(directory):
            os.remove(os.path.join(directory, name))
        for idx, text in enumerate(files):
            with open(os.path.join(directory, "rules%02d.yml" % idx), "w") as file:
                file.write(text)
        begun = time.time()
        status, answer = server.reload()
        assert status == 200, (server.name, answer[:500])
        harness.note("%s: rules read in %.1f s" % (server.name, time.time() - begun))


def start(args, directory):
    directories = [os.path.join(directory, name) for name in ("rules-ours", "rules-prometheus")]
    for one in directories:
        os.makedirs(one)
    servers = [harness.chronolith(args.chronolith, directory, wire.free_port(29500), "--rules.files", directories[0] + "/*.yml", *args.flags.split()).start()]
    if args.prometheus:
        config = os.path.join(directory, "prometheus.yml")
        with open(config, "w") as file:
            file.write("rule_files: ['%s/*.yml']\n" % directories[1])
        servers.append(harness.prometheus(args.prometheus, directory, wire.free_port(29510), config).start())
    series = shared_series(args.series) if args.sharing else sharded_series(args.series, args.groups)
    writer = Writer(Load(series), servers)
    begun = time.time()
    writer.history()
    harness.note("%d series, %d s of history written in %.0f s" % (args.series, HISTORY_SECONDS, time.time() - begun))
    writer.start()
    time.sleep(2 * WRITE_SECONDS)
    return servers, directories, writer


class Table:
    """Lines of the report, printed at once as well."""

    def __init__(self, args):
        self.args, self.lines = args, []

    def add(self, line=""):
        self.lines.append(line)
        print(line, flush=True)

    def row(self, *cells):
        self.add("| " + " | ".join(cells) + " |")

    def head(self, *cells):
        self.row(*cells)
        self.add("|---" + "|---:" * (len(cells) - 1) + "|")

    def write(self, directory, arguments):
        if not self.args.report:
            return
        first = lambda command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[:1]
        with open("/proc/cpuinfo") as file:
            cpu = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
        with open("/proc/meminfo") as file:
            memory = int(file.readline().split()[1]) // 1024
        load = " ".join("%.2f" % one for one in os.getloadavg())
        head = [
            "# rules-%s, %s" % ("sharing" if self.args.sharing else "scale", time.strftime("%Y-%m-%d")), "", "- cpu: %s" % cpu, "- core_count: %d" % os.cpu_count(),
            "- memory_mib: %d" % memory, "- kernel: Linux %s" % os.uname().release, "- command: kits/rules/scale.py %s" % arguments,
            "- load average at the end: %s" % load,
            "- chronolith: %s" % " ".join(first([self.args.chronolith, "--version"])),
        ]
        if self.args.prometheus:
            head.append("- prometheus: %s" % " ".join(first([self.args.prometheus, "--version"])))
        with open(self.args.report, "w") as file:
            file.write("\n".join(head + [""] + self.lines) + "\n")


def milliseconds(seconds, q):
    return "%.1f" % (1000 * harness.quantile(seconds, q))


def run_scale(args, report, table, servers, directories, clients):
    without = Phase(servers, clients, args.minutes)
    put_rules(servers, directories, sharded_rules(args))
    # The first rounds of all groups, and the memory of their results.
    time.sleep(1.5 * args.interval)
    looks = Rounds(servers[0], args.interval)
    looks.start()
    with_rules = Phase(servers, clients, args.minutes)
    looks.is_ended = True
    table.add("## %d rules in %d groups every %d s over %d series" % (args.rules, args.groups, args.interval, args.series))
    table.add()
    names = [server.name for server in servers]
    table.head("", *names)
    cpu = {name: with_rules.cores(name) - without.cores(name) for name in names}
    counts = {name: with_rules.used[name] for name in names}
    row = lambda title, shown: table.row(title, *[shown(name) for name in names])
    row("cores without rules", lambda name: "%.3f" % without.cores(name))
    row("cores with rules", lambda name: "%.3f" % with_rules.cores(name))
    row("of them for rules", lambda name: "%.3f" % cpu[name])
    row("evaluations of rules", lambda name: "%d" % counts[name]["rule_evaluations_total"])
    row("CPU per evaluation, us", lambda name: "%.0f" % (1e6 * cpu[name] * with_rules.seconds / max(1, counts[name]["rule_evaluations_total"])))
    row("failures", lambda name: "%d" % counts[name]["rule_evaluation_failures_total"])
    row("rounds", lambda name: "%d" % counts[name]["rule_group_iterations_total"])
    row("missed rounds", lambda name: "%d" % counts[name]["rule_group_iterations_missed_total"])
    row("resident memory without rules, MiB", lambda name: "%.0f" % without.rss[name][0])
    row("resident memory with rules, MiB", lambda name: "%.0f" % with_rules.rss[name][0])
    row("peak with rules, MiB", lambda name: "%.0f" % with_rules.rss[name][1])
    late = list(looks.late.values())
    table.add()
    table.add("- rounds of ours start late: median %.3f s, 99 %% %.3f s, at most %.3f s, of %d" % (harness.quantile(late, 0.5), harness.quantile(late, 0.99), max(late), len(late)))
    for name in clients:
        a, b = without.times[name], with_rules.times[name]
        table.add("- %s, ms: without rules p50 %s, p99 %s of %d; with rules p50 %s, p99 %s of %d" % (
            name, milliseconds(a, 0.5), milliseconds(a, 0.99), len(a), milliseconds(b, 0.5), milliseconds(b, 0.99), len(b)))
    table.add()
    table.add("## Targets")
    table.add()
    target(report, table, "missed rounds", counts["ours"]["rule_group_iterations_missed_total"], 0)
    target(report, table, "failed evaluations", counts["ours"]["rule_evaluation_failures_total"], 0)
    target(report, table, "resident memory with rules - without, MiB", with_rules.rss["ours"][0] - without.rss["ours"][0], RSS_MIB_MAX)
    target(report, table, "start of rounds, s late", max(late), LATE_SECONDS_MAX)
    ratio = harness.quantile(with_rules.times["small queries"], 0.99) / harness.quantile(without.times["small queries"], 0.99)
    target(report, table, "p99 of small queries with rules / without", ratio, 1.5)
    if args.prometheus:
        target(report, table, "CPU of rules / Prometheus's", cpu["ours"] / cpu["prometheus"], 1 / 8)


def run_sharing(args, report, table, servers, directories, clients):
    baseline = Phase(servers, clients, args.minutes)
    phases = {}
    for title, per_group in (("one group", args.rules), ("a group per rule", 1)):
        put_rules(servers[:1] if per_group == 1 else servers, directories, shared_rules(args, per_group))
        if per_group == 1 and args.prometheus:
            put_rules(servers[1:], directories[1:], [])
        time.sleep(1.5 * args.interval)
        phases[title] = Phase(servers[:1] if per_group == 1 else servers, clients, args.minutes)
    table.add("## %d rules over the same three metrics, %d series, every %d s" % (args.rules, args.series, args.interval))
    table.add()
    table.head("", "cores", "of them for rules", "evaluations", "failures", "missed rounds", "CPU per %d evaluations, ms" % args.rules)
    cost = {}
    for title, phase in phases.items():
        for name, used in phase.used.items():
            cores = phase.cores(name) - baseline.cores(name)
            count = used["rule_evaluations_total"]
            cost[name, title] = 1000 * cores * phase.seconds / max(1, count) * args.rules
            table.row("%s, %s" % (name, title), "%.3f" % phase.cores(name), "%.3f" % cores, "%d" % count, "%d" % used["rule_evaluation_failures_total"],
                      "%d" % used["rule_group_iterations_missed_total"], "%.0f" % cost[name, title])
    for name in [server.name for server in servers]:
        table.row("%s, no rules" % name, "%.3f" % baseline.cores(name), "", "", "", "", "")
    table.add()
    table.add("## Targets")
    table.add()
    target(report, table, "CPU of one group / of a group per rule", cost["ours", "one group"] / cost["ours", "a group per rule"], 0.4)
    if args.prometheus:
        target(report, table, "CPU of one group / Prometheus's", cost["ours", "one group"] / cost["prometheus", "one group"], 0.25)


def target(report, table, what, found, at_most):
    is_met = found <= at_most
    table.add("- %s: at most %.4g, found %.4f: %s" % (what, at_most, found, "met" if is_met else "**missed**"))
    report.passed += is_met
    report.failed += not is_met


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("--prometheus")
    parser.add_argument("--sharing", action="store_true")
    parser.add_argument("--rules", type=int)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--series", type=int)
    parser.add_argument("--interval", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--dashboards", type=int, default=0)
    parser.add_argument("--flags", default="", help="flags of our server, as --flags='--rules.repair-window 0'")
    parser.add_argument("--report", help="file for the report, as in bench/results")
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    args.rules = args.rules or (50 if args.sharing else 10_000)
    args.series = args.series or (100_000 if args.sharing else 200_000)
    arguments = " ".join("--%s %s" % (name, value) if value is not True else "--%s" % name for name, value in sorted(vars(args).items())
                         if value and name not in ("chronolith", "prometheus", "keep", "report"))
    directory = harness.work_directory(args.keep)
    report, table = harness.Report(), Table(args)
    servers, directories, writer = start(args, directory)
    clients = {}
    if not args.sharing:
        clients = {"small queries": SmallQueries(servers[0])}
        if args.dashboards:
            clients["refreshes of %d dashboards" % args.dashboards] = Dashboards(servers[0], args.dashboards)
    for client in clients.values():
        client.start()
    (run_sharing if args.sharing else run_scale)(args, report, table, servers, directories, clients)
    late = max(writer.late)
    table.add("- samples arrive at most %.1f s after their time" % late)
    failures = sum(client.failures for client in clients.values())
    if clients:
        table.add("- queries of clients that failed: %d" % failures)
    table.write(directory, arguments)
    for server in servers:
        server.stop()
    report.end()


if __name__ == "__main__":
    main()
