#!/usr/bin/env python3
"""The same rule files and the same samples to Prometheus and to this server: results are compared round by round.

    compare.py CHRONOLITH PROMETHEUS [--rules 60] [--seconds 120] [--keep DIR]

Samples are sent to both by remote write two seconds before their own times, so that each round sees the same
ones, however late it starts. Groups have intervals of 2 to 5 s, recording rules in chains of three, native
histograms, alerts with `for`, `keep_firing_for` and templates, series that end and begin. Shown:
- each recorded sample, ALERTS and ALERTS_FOR_STATE included: equal times and bits,
- each step of ALERTS and of recorded series at 1 s: equal series, so staleness markers are in the same rounds,
- each alert that was sent: labels, start, annotations of the first notification, end.
A round that one of them missed, as the machine was busy, is listed and left out, as is what depends on rounds
before in its group: ALERTS and alerts. Of more than 2 % of rounds the kit fails."""
import argparse
import calendar
import collections
import http.server
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

AHEAD_MS = 2000
LOOKBACK = "5s"
# Rules of one group, see GROUP.
RULES_PER_GROUP = 12
MISSED_MAX = 0.02

GROUP = """- name: group {g}
  interval: {interval}s
  labels: {{team: 't{g}'}}
  rules:
  - {{record: 'g{g}:c:rate', expr: 'rate(c{{shard="{shard}"}}[15s])'}}
  - {{record: 'g{g}:c:sum', expr: 'sum by (job) (g{g}:c:rate)', labels: {{kind: sum}}}}
  - {{record: 'g{g}:c:part', expr: 'g{g}:c:sum / ignoring(job) group_left sum without(job) (g{g}:c:sum)'}}
  - {{record: 'g{g}:top', expr: 'topk(2, v{{shard="{shard}"}}) * {g}.1'}}
  - {{record: 'g{g}:h', expr: 'sum by (job) (rate(h{{shard="{shard}"}}[15s]))'}}
  - {{record: 'g{g}:h:q', expr: 'histogram_quantile(0.{q}, g{g}:h)'}}
  - {{record: 'g{g}:dev', expr: 'stddev_over_time(v{{shard="{shard}"}}[10s]) > 3', labels: {{job: ''}}}}
  - {{record: 'g{g}:pending', expr: 'count by (alertname) (ALERTS{{team="t{g}"}})'}}
  - alert: 'High{g}'
    expr: v{{shard="{shard}"}} > 60
    for: {hold}s
    labels: {{severity: '{{{{ if gt $value 80.0 }}}}page{{{{ else }}}}ticket{{{{ end }}}}'}}
    annotations:
      summary: '{{{{ $labels.instance }}}} of {{{{ $labels.job | title }}}} is {{{{ $value | humanize }}}}'
      query: '{{{{ with query "count(v{{shard=\\"{shard}\\"}})" }}}}{{{{ . | first | value }}}}{{{{ end }}}} in {{{{ $externalLabels.region }}}} {{{{ $externalURL }}}}'
  - alert: 'Rate{g}'
    expr: g{g}:c:sum > {threshold}
    keep_firing_for: {keep}s
    annotations: {{rate: '{{{{ printf "%.3f" $value }}}} {{{{ humanizePercentage $value }}}}'}}
  - alert: 'Down{g}'
    expr: count by (job) (v{{shard="{shard}"}}) < 2
    for: {keep}s
    annotations: {{list: '{{{{ range query "g{g}:c:sum" | sortByLabel "job" }}}}{{{{ .Labels.job }}}} {{{{ .Value }}}} {{{{ end }}}}'}}
  - alert: 'Chain{g}'
    expr: ALERTS{{alertname="High{g}", alertstate="firing"}}
    labels: {{chained: 'yes'}}
"""


def rule_files(directory, rule_count):
    """Writes the files; returns the names of recorded metrics."""
    groups = -(-rule_count // RULES_PER_GROUP)
    names = []
    for g in range(groups):
        text = GROUP.format(g=g, interval=2 + g % 4, shard=g % 4, q=90 + g % 10, hold=2 + g % 7, threshold=10 + g, keep=3 + g % 6)
        with open(os.path.join(directory, "rules%02d.yml" % (g // 5)), "a") as file:
            if file.tell() == 0:
                file.write("groups:\n")
            file.write(text)
        names += ["g%d:%s" % (g, end) for end in ("c:rate", "c:sum", "c:part", "top", "h", "h:q", "dev", "pending")]
    return groups, names


class Alerts:
    """An Alertmanager that keeps what it gets."""

    def __init__(self, port):
        alerts = self.alerts = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                alerts.extend(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.port = wire.free_port(port)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def states(self):
        """Per alert and start: annotations of the first notification, and the end if it was resolved."""
        found = {}
        for alert in list(self.alerts):
            key = (tuple(sorted(alert["labels"].items())), milliseconds(alert["startsAt"]))
            state = found.setdefault(key, {"annotations": alert["annotations"], "url": alert["generatorURL"].split("/graph")[1], "end": None})
            ends_at = milliseconds(alert["endsAt"])
            # A firing alert is valid for four minutes; a resolved one has ended when it is sent.
            if ends_at < time.time() * 1000 - 500:
                state["end"] = ends_at
        return found


def milliseconds(text):
    """Milliseconds of a time of RFC 3339 in UTC, digits below cut."""
    whole, fraction = re.match(r"([^.Z]*)(?:\.(\d+))?Z", text).groups()
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000 + int(((fraction or "") + "000")[:3])


def histogram(value):
    # Counts of a counter histogram that grows.
    result = wire.FH(schema=2, zt=2.0 ** -128)
    result.pos = {idx: float(value * (8 - idx) // 8) for idx in range(8)}
    result.count = sum(result.pos.values())
    result.sum = value * 1.25
    return result


class Load:
    """Samples of one second; the same for both."""

    def __init__(self):
        self.counters = collections.defaultdict(int)

    def series(self, second):
        at = second * 1000
        for shard in range(4):
            for idx in range(6):
                labels = {"shard": str(shard), "job": "job%d" % (idx % 3), "instance": "host%d" % idx}
                # Two of six end now and then, for longer than the lookback.
                if idx >= 4 and (second // 20 + shard + idx) % 3 == 0:
                    continue
                key = (shard, idx)
                self.counters[key] += (second * 7 + shard * 3 + idx * 5) % 11
                if (second + idx) % 53 == 0:
                    self.counters[key] = 0
                value = 50 + 45 * math.sin(second / (5.0 + idx) + shard)
                yield dict(labels, __name__="c"), [(at, float(self.counters[key]))]
                yield dict(labels, __name__="v"), [(at, value)]
                yield dict(labels, __name__="h"), [(at, histogram(self.counters[key]))]


class Server:
    def __init__(self, name, command, port, log):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        self.client = wire.Client("http://127.0.0.1:%d" % port)
        assert self.client.wait_ready(), "%s is not ready, see %s" % (name, log)

    def get(self, path, **params):
        status, answer = self.client.api(path, params)
        assert status == 200 and answer.get("status") == "success", (self.name, answer)
        return answer["data"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def start(args, directory):
    rules = os.path.join(directory, "rules")
    os.mkdir(rules)
    groups, names = rule_files(rules, args.rules)
    receivers = [Alerts(29100), Alerts(29110)]
    config = "alerting:\n  alertmanagers:\n  - static_configs: [{targets: ['127.0.0.1:%d']}]\n"
    ports = [wire.free_port(29120), wire.free_port(29130)]
    files = [os.path.join(directory, name) for name in ("ours.yml", "prometheus.yml")]
    with open(files[0], "w") as file:
        file.write(config % receivers[0].port)
    with open(files[1], "w") as file:
        file.write("global: {external_labels: {region: eu}}\nrule_files: ['%s/*.yml']\n" % rules + config % receivers[1].port)
    url = "http://rules.example/base"
    ours = [
        args.chronolith, "serve", "--data-dir", directory + "/ours", "--http", "127.0.0.1:%d" % ports[0], "--self-scrape", "off",
        "--rules.files", rules + "/*.yml", "--external-label", "region=eu", "--rules.alerting-config", files[0],
        "--web.external-url", url, "--web.route-prefix", "/", "--query.lookback", LOOKBACK,
    ]
    prometheus = [
        args.prometheus, "--config.file", files[1], "--storage.tsdb.path", directory + "/prometheus", "--web.listen-address",
        "127.0.0.1:%d" % ports[1], "--web.enable-remote-write-receiver", "--web.external-url", url, "--web.route-prefix", "/",
        "--query.lookback-delta", LOOKBACK,
    ]
    servers = [
        Server("ours", ours, ports[0], directory + "/ours.log"),
        Server("prometheus", prometheus, ports[1], directory + "/prometheus.log"),
    ]
    return groups, names, receivers, servers


def send(servers, seconds):
    """Sends the samples; returns first and last second."""
    load = Load()
    first = int(time.time()) + 10
    for second in range(first, first + seconds):
        time.sleep(max(0, second - AHEAD_MS / 1000 - time.time()))
        series = list(load.series(second))
        for server in servers:
            status, _, text = server.client.write(series)
            assert status in (200, 204), (server.name, status, text)
    return first, first + seconds


def bits(value):
    return struct.pack("<d", float(value)).hex()


def recorded(server, name, first, end):
    """Samples of a metric between the first and the last sample that was sent, by labels: time in ms to value."""
    result = server.get("/api/v1/query", query='{__name__="%s"}[%ds]' % (name, end - first), time=str(end))["result"]
    found = {}
    for series in result:
        points = {round(float(at) * 1000): bits(value) for at, value in series.get("values", [])}
        points.update({round(float(at) * 1000): json.dumps(value, sort_keys=True) for at, value in series.get("histograms", [])})
        found[tuple(sorted(series["metric"].items()))] = points
    return found


def rounds_of(all_samples):
    """Times of the samples per group, by the label that all of its rules set."""
    times = collections.defaultdict(set)
    for found in all_samples.values():
        for labels, points in found.items():
            times[dict(labels).get("team")].update(points)
    return times


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, differences, count):
        if differences or not count:
            self.failed += 1
            print("FAIL %s: %d differ of %d" % (what, len(differences), count))
            for difference in differences[:5]:
                print("     %s" % (difference,))
        else:
            self.passed += 1
            print("ok   %s: %d" % (what, count))


def is_close(a, b):
    """Returns true for values that differ in their last bits."""
    values = [struct.unpack("<d", bytes.fromhex(text or "00" * 8))[0] for text in (a, b)]
    return None not in (a, b) and math.isclose(*values, rel_tol=1e-14)


def compare_samples(report, names, servers, first, end):
    found = [{name: recorded(server, name, first, end) for name in names + ["ALERTS", "ALERTS_FOR_STATE"]} for server in servers]
    times = [rounds_of(one) for one in found]
    missed, all_rounds = [], 0
    common = {}
    for team in sorted(set(times[0]) | set(times[1]), key=str):
        a, b = times[0].get(team, set()), times[1].get(team, set())
        common[team] = a & b
        all_rounds += len(a | b)
        missed += [(team, at, "ours" if at in b else "prometheus") for at in sorted(a ^ b)]
    for miss in missed[:10]:
        print("     round missed: group %s at %d by %s" % miss)
    report.check("rounds of both", missed if len(missed) > MISSED_MAX * all_rounds else [], all_rounds)
    incomplete = {team for team, _, _ in missed}
    differences, count, last_bits = [], 0, 0
    for name in found[0]:
        a, b = found[0][name], found[1][name]
        for labels in set(a) | set(b):
            team = dict(labels).get("team")
            if team in incomplete and (name.startswith("ALERTS") or name.endswith(":pending")):
                continue
            rounds = common[team]
            left = {at: value for at, value in a.get(labels, {}).items() if at in rounds}
            right = {at: value for at, value in b.get(labels, {}).items() if at in rounds}
            count += len(set(left) | set(right))
            differing = [at for at in sorted(set(left) | set(right)) if left.get(at) != right.get(at)]
            if name.endswith(":h:q"):
                # Quantiles of native histograms take logarithms: Go and Rust have other last bits.
                last_bits += len(differing)
                differing = [at for at in differing if not is_close(left.get(at), right.get(at))]
                last_bits -= len(differing)
            differences += [(name, labels, at, left.get(at), right.get(at)) for at in differing]
    report.check("recorded samples, bit for bit", differences, count)
    print("     %d quantiles of native histograms differ in their last bits" % last_bits)
    return incomplete


def compare_steps(report, servers, names, incomplete, first, end):
    """Series at each second: staleness markers are in the same rounds."""
    differences, count = [], 0
    for name in names + ["ALERTS"]:
        answers = []
        for server in servers:
            data = server.get("/api/v1/query_range", query='count by (team, alertname, alertstate) ({__name__="%s"})' % name, start=str(first), end=str(end), step="1")
            answers.append({json.dumps(series["metric"], sort_keys=True): series["values"] for series in data["result"]})
        for key in set(answers[0]) | set(answers[1]):
            if json.loads(key).get("team") in incomplete:
                continue
            a, b = dict(map(tuple, answers[0].get(key, []))), dict(map(tuple, answers[1].get(key, [])))
            count += len(set(a) | set(b))
            differences += [(name, key, at, a.get(at), b.get(at)) for at in sorted(set(a) | set(b)) if a.get(at) != b.get(at)]
    report.check("series at each second", differences, count)


def compare_alerts(report, receivers, incomplete):
    def complete(states):
        return {key: state for key, state in states.items() if dict(key[0]).get("team") not in incomplete}

    a, b = (complete(receiver.states()) for receiver in receivers)
    differences = [(key, a.get(key), b.get(key)) for key in set(a) | set(b) if a.get(key) != b.get(key)]
    ended = sum(1 for state in b.values() if state["end"])
    report.check("alerts sent", differences, len(b))
    report.check("of them resolved", [], ended)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("prometheus")
    parser.add_argument("--rules", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    directory = args.keep or tempfile.mkdtemp(prefix="rules-")
    os.makedirs(directory, exist_ok=True)
    report = Report()
    groups, names, receivers, servers = start(args, directory)
    try:
        first, end = send(servers, args.seconds)
        time.sleep(end + 12 - time.time())
        print("%d groups, %d rules, %d s" % (groups, groups * RULES_PER_GROUP, args.seconds))
        incomplete = compare_samples(report, names, servers, first, end)
        report.check("groups without a missed round", [], groups - len(incomplete))
        compare_steps(report, servers, names, incomplete, first, end)
        compare_alerts(report, receivers, incomplete)
    finally:
        for server in servers:
            server.stop()
        if not args.keep:
            shutil.rmtree(directory)
    print("%d passed, %d failed" % (report.passed, report.failed))
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
