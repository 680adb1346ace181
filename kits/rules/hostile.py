#!/usr/bin/env python3
"""Hostile rule files, templates, rules and Alertmanagers: a named limit and a clear error each, in bounded memory.

    hostile.py CHRONOLITH [--series 20000] [--series-limit 10000] [--memory-mib 512] [--seconds 25] [--keep DIR]

In full: --series 1000000 --series-limit 200000 --memory-mib 1024, since two results of a million series are
made at the same time. While all of it goes on, a group of another file is evaluated each
second, an Alertmanager of the kit gets its alerts, and a client asks a small query 20 times a second.
- Rule files (50 MB, 100,000 rules, aliases, nesting ...) are given to --check-config and to a reload: both refuse
  them with the same named limit or position, all groups stay as they are, and memory grows by less than a bound.
- Templates that loop, call themselves or double a text end at a limit, which the annotation and the log name.
- Rules with too many series, samples or levels have the limit in lastError.
- Alertmanagers that answer one byte a second, redirect, send a gigabyte, endless headers or no HTTP: their
  requests fail or end in time, a healthy one gets each alert within a second."""
import argparse
import os
import re
import socket
import subprocess
import threading
import time

import harness

MIB = 1 << 20
BODY_BYTES = 1 << 30
# A body counts as read no further than this; the kernel's buffers of both sides are part of it.
BODY_TAKEN_MAX = 16 * MIB
NOTIFIED_WITHIN_MS = 1000
QUERY_SECONDS_MAX = 2.0
PAUSE_SECONDS_MAX = 5

GOOD = """groups:
- name: good
  interval: 1s
  rules:
  - {record: 'good:time', expr: time()}
  - {alert: Good, expr: 'vector(time()) > 0', labels: {second: '{{ $value | printf "%.0f" }}'}}
"""

TEMPLATES = {
    # Name: template, and what the error has to name.
    "recursion": ('{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}', "limit of [0-9]+ levels"),
    "long loop": ("{{ range $i := 2000000000 }}{{ $i }}{{ end }}", "limit of [0-9]+ (steps|bytes)"),
    "loops of queries": ('{{ range query "v" }}{{ range query "v" }}{{ range query "v" }}{{ end }}{{ end }}{{ end }}', "limit of [0-9]+ (steps|queries)"),
    "doubled text": ('{{ $x := "aaaaaaaaaaaaaaaa" }}{{ range 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}{{ $x }}', "limit of [0-9]+ bytes"),
    "width of printf": ('{{ range 100 }}{{ printf "%999999d" 1 }}{{ end }}', "limit of [0-9]+ (steps|bytes)"),
    "deep pipeline": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", None),
}

RULES = {
    # Name: expression, and what lastError has to name.
    "million series": ('{__name__="wide"}', "has [0-9]+ series, and rules.series-per-rule-max allows [0-9]+"),
    "million series, computed": ('label_replace({__name__="wide"}, "a", "b$1", "idx", "(.*)") * 2', "rules.series-per-rule-max allows [0-9]+|limit|memory"),
    "subqueries of subqueries": ("sum_over_time(sum_over_time(v[30d:1s])[30d:1s])", "query[.]|limit|memory|samples|has taken [0-9]+ ms|timed out"),
}
MAY_END = ("subqueries of subqueries",)
INTERVAL_SECONDS = 5


def rules_text(group_count, rules_per_group, prefix="a"):
    parts = ["groups:\n"]
    for group in range(group_count):
        parts.append("- name: g%d\n  interval: 1h\n  rules:\n" % group)
        parts.extend("  - {record: '%s:r%d', expr: 'v + %d'}\n" % (prefix, rule, rule) for rule in range(rules_per_group))
    return "".join(parts)


def hostile_files():
    """Name, content, and what the error has to name."""
    padding = "# " + "x" * 998 + "\n"
    yield "file of 50 MB", rules_text(1, 1) + padding * 50_000, "file has [0-9]+ bytes, at most [0-9]+ are allowed"
    yield "file of 31 MB without rules", "a: [" + "1," * (15 * MIB) + "]\n", "more than [0-9]+ values"
    yield "100,000 rules", rules_text(100, 1000), "more than 50000 rules"
    yield "100,000 rules in one group", rules_text(1, 40_000), "has 40000 rules, and rules.per-group-max allows 2000"
    yield "20,000 groups", rules_text(20_000, 1), "more than 10000 groups"
    yield "5,000 groups", rules_text(5000, 1), "rule groups, and rules.groups-max allows 2000"
    levels = "".join("a%d: &a%d [%s]\n" % (level, level, ",".join(["*a%d" % (level - 1)] * 10)) for level in range(1, 12))
    yield "aliases of aliases", "a0: &a0 [%s]\n" % ",".join(["lol"] * 10) + levels, "more than [0-9]+|bytes"
    yield "nesting of YAML", "groups: " + "[" * 200_000, "yaml"
    yield "nesting of an expression", "groups: [{name: a, rules: [{record: a, expr: '%sv%s'}]}]" % ("(" * 100_000, ")" * 100_000), "nested more than [0-9]+ levels"
    yield "long operators", "groups: [{name: a, rules: [{record: a, expr: 'v%s'}]}]" % ("+v" * 2_000_000), "more than [0-9]+ operators"
    yield "large expression of a regex", "groups: [{name: a, rules: [{record: a, expr: '{a=~\"((a{1000}){1000}){1000}\"}'}]}]", "regex|repeat|size|parse"
    yield "long line without an end", "groups: [{name: \"" + "a" * (20 * MIB), "yaml"
    yield "no text", os.urandom(MIB).decode("latin-1"), "yaml"
    yield "a hundred thousand errors", "groups:\n- name: g\n  rules:\n" + "  - {record: 'a', expr: 'v +'}\n" * 50_000, "and [0-9]+ more errors"
    yield "unfinished template", "groups: [{name: a, rules: [{alert: A, expr: v, annotations: {a: '{{ range 5 }}'}}]}]", "template"


class HostileAlertmanager:
    """Answers each request as `answer` does, and counts the bytes that were taken."""

    def __init__(self, name, answer):
        self.name, self.answer = name, answer
        self.requests = self.taken = self.open = 0
        self.longest = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    part = connection.recv(65536)
                    if not part:
                        return
                    head += part
                length = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
                rest = length - (len(head) - head.index(b"\r\n\r\n") - 4)
                while rest > 0:
                    rest -= len(connection.recv(min(rest, 65536)))
                self.requests += 1
                begun = time.time()
                try:
                    self.answer(self, connection)
                finally:
                    self.longest = max(self.longest, time.time() - begun)
        except OSError:
            pass
        finally:
            connection.close()

    def send(self, connection, data):
        connection.sendall(data)
        self.taken += len(data)

    def send_for_ever(self, connection, data, bytes_max=BODY_BYTES):
        sent = 0
        while sent < bytes_max:
            self.send(connection, data)
            sent += len(data)


def trickle(text):
    def answer(self, connection):
        for byte in text:
            self.send(connection, bytes([byte]))
            time.sleep(1)
        while True:
            self.send(connection, b"x")
            time.sleep(1)
    return answer


def bodies(status):
    def answer(self, connection):
        self.send(connection, b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, BODY_BYTES))
        self.send_for_ever(connection, b"x" * 65536)
    return answer


def slow_body(self, connection):
    self.send(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    trickle(b"")(self, connection)


def endless_headers(self, connection):
    self.send(connection, b"HTTP/1.1 200 OK\r\n")
    self.send_for_ever(connection, b"X-Header-%d: " % self.taken + b"y" * 1000 + b"\r\n")


def endless_continue(self, connection):
    self.send_for_ever(connection, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def endless_chunks(self, connection):
    self.send(connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    self.send_for_ever(connection, b"1\r\nx\r\n" * 1000)


def no_http(self, connection):
    self.send_for_ever(connection, b"\0\xff" * 30_000)


def hang(self, connection):
    time.sleep(3600)


def close(self, connection):
    connection.close()
    raise OSError


def redirect_to(port):
    def answer(self, connection):
        self.send(connection, b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:%d/api/v2/alerts\r\nContent-Length: 0\r\n\r\n" % port)
    return answer


class Probe(threading.Thread):
    """Asks a small query 20 times a second."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.client = harness.wire.Client("http://127.0.0.1:%d" % server.port)
        self.seconds, self.failures = [], []

    def run(self):
        while True:
            begun = time.time()
            try:
                status, answer = self.client.api("/api/v1/query", {"query": "good:time"})
                if status != 200:
                    self.failures.append((status, str(answer)[:200]))
            except OSError as error:
                self.failures.append((0, str(error)))
            self.seconds.append(time.time() - begun)
            time.sleep(0.05)


def start(args, directory):
    rules = os.path.join(directory, "rules")
    os.makedirs(rules, exist_ok=True)
    with open(os.path.join(rules, "good.yml"), "w") as file:
        file.write(GOOD)
    healthy, trap = harness.Receiver(29400), harness.Receiver(29410)
    hostile = [
        HostileAlertmanager("one byte a second", trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
        HostileAlertmanager("a body of one byte a second", slow_body),
        HostileAlertmanager("a redirect", redirect_to(trap.port)),
        HostileAlertmanager("200 and 1 GB", bodies(b"200 OK")),
        HostileAlertmanager("500 and 1 GB", bodies(b"500 Internal Server Error")),
        HostileAlertmanager("endless chunks", endless_chunks),
        HostileAlertmanager("endless headers", endless_headers),
        HostileAlertmanager("endless 100 Continue", endless_continue),
        HostileAlertmanager("no HTTP", no_http),
        HostileAlertmanager("a closed connection", close),
        HostileAlertmanager("no answer", hang),
    ]
    config = os.path.join(directory, "alerting.yml")
    with open(config, "w") as file:
        file.write("alerting:\n  alertmanagers:\n  - timeout: 3s\n    static_configs: [{targets: %s}]\n" % ["127.0.0.1:%d" % one.port for one in [healthy, *hostile]])
    flags = ["--rules.files", rules + "/*.yml", "--rules.alerting-config", config, "--rules.series-per-rule-max", str(args.series_limit)]
    server = harness.chronolith(args.chronolith, directory, harness.wire.free_port(29420), *flags).start()
    return server, rules, flags, healthy, trap, hostile


def grown_mib(server, work):
    """Runs `work`; returns what it returns, and by how many MiB the peak of resident memory exceeded the level before."""
    harness.reset_peak(server.process.pid)
    before, _ = harness.rss_mib(server.process.pid)
    result = work()
    return result, harness.rss_mib(server.process.pid)[1] - before


def check_only(args, server, flags):
    """The output of --check-config, and the peak of its resident memory in MiB."""
    command = [args.chronolith, "serve", "--data-dir", os.path.dirname(server.log) + "/unused", "--check-config", *flags]
    process = subprocess.Popen(["/usr/bin/env", "python3", "-c", CHILD, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, _ = process.communicate()
    text, peak = output.rsplit("\n", 1)
    return process.returncode, text, int(peak) / 1024


# Runs a command and prints the peak of its resident memory in KiB.
CHILD = "import resource,subprocess,sys; code = subprocess.call(sys.argv[1:]); print(end='\\n%d' % resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"


def check_files(args, report, server, rules, flags):
    path = os.path.join(rules, "hostile.yml")
    _, _, unhurt = check_only(args, server, flags)
    for name, content, wanted in hostile_files():
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        begun = time.time()
        code, text, peak = check_only(args, server, flags)
        checked = time.time() - begun
        problems = []
        # The number of groups is a limit of all files together.
        if code == 0 or not re.search(wanted, text) or ("hostile.yml" not in text and "rules.groups-max" not in text):
            problems.append(("--check-config", code, text[:300]))
        if peak - unhurt > args.memory_mib:
            problems.append(("--check-config took %d MiB" % (peak - unhurt)))
        begun = time.time()
        (status, answer), grown = grown_mib(server, server.reload)
        reloaded = time.time() - begun
        if status != 500 or not re.search(wanted, answer):
            problems.append(("reload", status, answer[:300]))
        if len(answer) > 64 << 10:
            problems.append(("the answer has %d bytes" % len(answer)))
        if grown > args.memory_mib:
            problems.append(("reload took %d MiB" % grown))
        if server.metric_sum("chronolith_rules_last_reload_successful") != 0:
            problems.append("chronolith_rules_last_reload_successful is not 0")
        report.check("file: %s" % name, problems, 1)
        harness.note("check %.1f s, %d MiB; reload %.1f s, %d MiB: %s" % (checked, peak - unhurt, reloaded, grown, re.sub(r"\s+", " ", text)[:150]))
    os.remove(path)
    status, answer = server.reload()
    report.expect("a reload without them", status == 200, answer)


def check_many_rules(args, report, server, rules):
    """100,000 rules within all limits are taken."""
    paths = [os.path.join(rules, "many%d.yml" % idx) for idx in range(4)]
    for idx, path in enumerate(paths):
        with open(path, "w") as file:
            file.write(rules_text(25, 1000, "m%d" % idx))
    begun = time.time()
    (status, answer), grown = grown_mib(server, server.reload)
    seconds = time.time() - begun
    groups = server.get("/api/v1/rules", exclude_alerts="true")["groups"]
    count = sum(len(group["rules"]) for group in groups)
    report.expect("100,000 rules of four files", status == 200 and count >= 100_000 and grown < args.memory_mib, (status, answer[:300], count, grown))
    harness.note("reload %.1f s, %d MiB" % (seconds, grown))
    for path in paths:
        os.remove(path)
    report.expect("removed again", server.reload()[0] == 200)


def write_series(args, server):
    at = harness.now_ms()
    for first in range(0, args.series, 10_000):
        series = [({"__name__": "wide", "idx": "%d" % idx}, [(at, 1.0)]) for idx in range(first, min(first + 10_000, args.series))]
        server.write(series)
    server.write([({"__name__": "v", "idx": "%d" % idx}, [(at, 1.0)]) for idx in range(50)])


def yaml_text(text):
    return "'%s'" % text.replace("'", "''")


def check_rules(args, report, server, rules):
    write_series(args, server)
    lines = ["groups:"]
    for name, (expr, _) in RULES.items():
        # A group each, so that none waits for another.
        lines += ["- name: %s" % name, "  interval: %ds" % INTERVAL_SECONDS, "  rules:", "  - {record: 'hostile:rule', expr: %s, labels: {rule: %s}}" % (yaml_text(expr), yaml_text(name))]
    for name, (template, _) in TEMPLATES.items():
        lines += ["- name: template %s" % name, "  interval: 5s", "  rules:", "  - {alert: Template, expr: vector(1), labels: {rule: %s}, annotations: {text: %s}}" % (yaml_text(name), yaml_text(template))]
    path = os.path.join(rules, "running.yml")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    harness.reset_peak(server.process.pid)
    before, _ = harness.rss_mib(server.process.pid)
    status, answer = server.reload()
    if status != 200 and "deep pipeline" in TEMPLATES:
        # Refused as a file already, with its position.
        report.expect("template: deep pipeline is refused", re.search(r"running.yml: \d+:\d+.*(level|depth|nest)", answer), answer[:300])
        del TEMPLATES["deep pipeline"]
        return check_rules(args, report, server, rules)
    assert status == 200, answer
    groups = lambda: {group["name"]: group for group in server.get("/api/v1/rules")["groups"]}
    names = list(RULES) + ["template " + name for name in TEMPLATES]
    evaluated = lambda: all(groups()[name]["rules"][0]["health"] != "unknown" for name in names)
    report.expect("all groups are evaluated", harness.wait_until(evaluated, 120, 0.5))
    time.sleep(args.seconds)
    found = groups()
    for name, (_, wanted) in RULES.items():
        rule = found[name]["rules"][0]
        text = rule.get("lastError", "")
        is_refused = rule["health"] == "err" and re.search(wanted, text)
        # A fast machine evaluates it within its interval.
        is_done = name in MAY_END and rule["health"] == "ok" and rule["evaluationTime"] < INTERVAL_SECONDS
        report.expect("rule: %s" % name, is_refused or is_done, (rule["health"], rule["evaluationTime"], text[:300]))
        harness.note("%.2f s: %s" % (rule["evaluationTime"], text[:150]))
    log = server.log_text()
    for name, (_, wanted) in TEMPLATES.items():
        rule = found["template " + name]["rules"][0]
        text = (rule["alerts"] or [{"annotations": {"text": ""}}])[0]["annotations"]["text"]
        line = re.search(r"template of an alert failed.*", log)
        report.expect("template: %s" % name, "error expanding template" in text and re.search(wanted or "", text) and line, text[:300])
        harness.note("%.2f s: %s" % (rule["evaluationTime"], text[:150]))
    grown = harness.rss_mib(server.process.pid)[1] - before
    report.expect("memory of these rules below %d MiB" % args.memory_mib, grown < args.memory_mib, "%d MiB" % grown)
    harness.note("%d MiB" % grown)
    os.remove(path)
    server.reload()


def check_alertmanagers(report, server, healthy, trap, hostile):
    metrics = server.metrics()
    log = server.log_text()
    for one in hostile:
        url = "127.0.0.1:%d/" % one.port
        count = lambda name: sum(value for key, value in metrics.items() if key.startswith("chronolith_notifications_%s" % name) and url in key)
        sent, errors = count("sent_total"), count("errors_total")
        line = re.search(r"sending alerts failed.*%s.*|.*%s.*sending alerts failed.*" % (re.escape(url), re.escape(url)), log)
        problems = []
        if one.requests == 0:
            problems.append("no requests")
        if errors and not line:
            problems.append("no line of the log")
        # Responses before the response are skipped until the timeout.
        is_bounded_by_time = one.name == "endless 100 Continue"
        if one.taken > BODY_TAKEN_MAX * max(1, one.requests) and not is_bounded_by_time:
            problems.append("%d MiB taken of %d requests" % (one.taken / MIB, one.requests))
        if one.longest > 8 and one.name != "no answer":
            problems.append("a request took %.1f s, and the timeout is 3 s" % one.longest)
        if not sent and not errors:
            problems.append("neither sent nor failed")
        report.check("Alertmanager: %s" % one.name, problems, 1)
        harness.note("%d requests, %d alerts sent, %d failed, %.1f MiB taken" % (one.requests, sent, errors, one.taken / MIB))
        if line:
            harness.note(re.sub(r"\x1b\[[0-9;]*m", "", line.group(0))[:220])
    report.expect("redirects are not followed", not trap.received, trap.received[:1])
    delays = {}
    for at, alert in healthy.alerts():
        if alert["labels"]["alertname"] == "Good":
            delays.setdefault(alert["labels"]["second"], at - harness.milliseconds(alert["startsAt"]))
    late = [(second, delay) for second, delay in delays.items() if delay >= NOTIFIED_WITHIN_MS]
    # A second may be late, as the machine is busy with files and rules.
    report.check("the healthy Alertmanager has each alert within a second", late if len(late) > 0.02 * len(delays) else [], len(delays))
    harness.note("median %d ms, 99 %% %d ms, at most %d ms" % (harness.quantile(delays.values(), 0.5), harness.quantile(delays.values(), 0.99), max(delays.values())))


def check_serving(report, server, probe, begun):
    report.check("small queries answered", probe.failures, len(probe.seconds))
    slow = [seconds for seconds in probe.seconds if seconds > QUERY_SECONDS_MAX]
    report.check("small queries within %.0f s" % QUERY_SECONDS_MAX, slow, len(probe.seconds))
    harness.note("median %.1f ms, 99 %% %.1f ms, at most %.0f ms" % tuple(1000 * value for value in (
        harness.quantile(probe.seconds, 0.5), harness.quantile(probe.seconds, 0.99), max(probe.seconds))))
    end = int(time.time())
    values = server.get("/api/v1/query", query="good:time[%ds]" % (end - begun))["result"][0]["values"]
    gaps = [(first[0], second[0] - first[0]) for first, second in zip(values, values[1:]) if second[0] - first[0] > 1.5]
    missed = server.metric_sum("chronolith_rule_group_iterations_missed_total", ";good")
    lost = sum(round(seconds) - 1 for _, seconds in gaps)
    report.check("rounds of the good group: all or counted as missed, no pause of %d s" % PAUSE_SECONDS_MAX,
                 [gap for gap in gaps if lost > missed or gap[1] > PAUSE_SECONDS_MAX], len(values))
    harness.note("%d of %d rounds missed, %d as the server counts them" % (lost, len(values) + lost, missed))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("--series", type=int, default=20_000)
    parser.add_argument("--series-limit", type=int, default=10_000)
    parser.add_argument("--memory-mib", type=int, default=512, help="growth of resident memory that a case may cause")
    parser.add_argument("--seconds", type=int, default=10, help="time for which hostile rules run")
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    directory = harness.work_directory(args.keep)
    report = harness.Report()
    server, rules, flags, healthy, trap, hostile = start(args, directory)
    begun = int(time.time())
    probe = Probe(server)
    probe.start()
    time.sleep(15)
    alertmanagers_mib = harness.rss_mib(server.process.pid)[1]
    report.expect("memory with these Alertmanagers below %d MiB" % args.memory_mib, alertmanagers_mib < args.memory_mib, alertmanagers_mib)
    harness.note("%d MiB after 15 s" % alertmanagers_mib)
    check_files(args, report, server, rules, flags)
    check_many_rules(args, report, server, rules)
    check_rules(args, report, server, rules)
    check_alertmanagers(report, server, healthy, trap, hostile)
    check_serving(report, server, probe, begun)
    stopped = time.time()
    server.stop()
    report.expect("stop within 15 s", time.time() - stopped < 15, time.time() - stopped)
    report.end()


if __name__ == "__main__":
    main()
