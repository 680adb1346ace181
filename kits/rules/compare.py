#!/usr/bin/env python3
"""The same rule files and the same samples to Prometheus and to this server: results are compared round by round.

    compare.py CHRONOLITH PROMETHEUS [--rules 60] [--seconds 120] [--keep DIR]     (--rules 200 --seconds 1200 in full)

Samples are sent to both by remote write two seconds before their own times, so that each round sees the same
ones, however late it starts. Groups have intervals of 2 to 5 s and some a `query_offset`, recording rules in
chains of three, native histograms, alerts with `for`, `keep_firing_for` and templates, series that end and begin.
Compared are:
- the lists of rules: texts, labels, annotations, durations, health;
- each recorded sample, ALERTS and ALERTS_FOR_STATE included: equal times and bits,
- each step of ALERTS and of recorded series at 1 s: equal series, so staleness markers are in the same rounds,
- each alert that was sent: labels, start, annotations of the first notification, end.
A busy machine makes a server miss a round. Such a round is listed and left out, and so is what may depend on it:
the state of an alert, from a round that one server alone missed until a round in which both have no such alert,
and the alerts that read it. Rounds that this server missed have to be as many as it counts itself. With more
than `--missed-max` of the rounds left out, or less than half of the states of alerts compared, the kit fails."""
import argparse
import collections
import json
import math
import os
import re
import struct
import time

import harness
from harness import wire

AHEAD_MS = 2000
LOOKBACK_SECONDS = 5
# Rules of one group, see GROUP.
RULES_PER_GROUP = 16
STATES_COMPARED_MIN = 0.5

GROUP = """- name: group {g}
  interval: {interval}s
  {offset}
  labels: {{team: 't{g}'}}
  rules:
  - {{record: 'g{g}:c:rate', expr: 'rate(c{{shard="{shard}"}}[15s])'}}
  - {{record: 'g{g}:c:sum', expr: 'sum by (job) (g{g}:c:rate)', labels: {{kind: sum}}}}
  - {{record: 'g{g}:c:part', expr: 'g{g}:c:sum / ignoring(job) group_left sum without(job) (g{g}:c:sum)'}}
  - {{record: 'g{g}:top', expr: 'topk(2, v{{shard="{shard}"}}) * {g}.1'}}
  - {{record: 'g{g}:h', expr: 'sum by (job) (rate(h{{shard="{shard}"}}[15s]))'}}
  - {{record: 'g{g}:h:q', expr: 'histogram_quantile(0.{q}, g{g}:h)'}}
  - {{record: 'g{g}:dev', expr: 'stddev_over_time(v{{shard="{shard}"}}[10s]) > 3', labels: {{job: ''}}}}
  - {{record: 'g{g}:sub', expr: 'max_over_time(avg by (job) (v{{shard="{shard}"}})[12s:2s] offset 1s)'}}
  - {{record: 'g{g}:absent', expr: 'absent(v{{shard="{shard}", instance="host5"}})'}}
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
  - alert: 'Text{g}'
    expr: label_replace(v{{shard="{shard}"}} < 10, "address", "$1.example:9100", "instance", "(.*)")
    for: {hold}s
    keep_firing_for: {keep}s
    labels: {{empty: '{{{{ $labels.none }}}}', upper: '{{{{ $labels.job | toUpper }}}}'}}
    annotations:
      functions: '{{{{ $labels.address | stripPort | stripDomain }}}} {{{{ humanize1024 1e7 }}}} {{{{ humanizeDuration 93784.5 }}}} {{{{ humanizeTimestamp 1700000000.25 }}}} {{{{ reReplaceAll "h(.)st" "$1" $labels.instance }}}}'
      more: '{{{{ tableLink "v > 1" }}}} {{{{ graphLink "v" }}}} {{{{ match "host[0-3]" $labels.instance }}}} {{{{ parseDuration "1h30m" }}}} {{{{ "a b&c" | urlQueryEscape }}}} {{{{ externalURL }}}}{{{{ pathPrefix }}}}'
      local: '{{{{ define "one" }}}}<{{{{ . }}}}>{{{{ end }}}}{{{{ range $i, $job := args "x" "y" }}}}{{{{ $i }}}}={{{{ template "one" $job }}}};{{{{ end }}}} {{{{ printf "%v %q %5.1f|%-6s|" true "q" 2.25 "s" }}}}'
  - alert: 'Wide{g}'
    expr: sum without (instance) (v{{shard="{shard}"}}) > {threshold}0
    labels: {{of: 'job {{{{ $labels.job }}}}'}}
    annotations: {{first: '{{{{ query "sort_desc(v{{shard=\\"{shard}\\"}})" | first | label "instance" }}}}'}}
  - alert: 'Chain{g}'
    expr: ALERTS{{alertname="High{g}", alertstate="firing"}}
    labels: {{chained: 'yes'}}
"""

# Recorded metrics of a group, and those that depend on the states of its alerts.
RECORDED = ("c:rate", "c:sum", "c:part", "top", "h", "h:q", "dev", "sub", "absent", "pending")
OF_STATES = ("pending",)


def rule_files(directory, rule_count):
    """Writes the files; returns the names of recorded metrics."""
    groups = -(-rule_count // RULES_PER_GROUP)
    names = []
    for g in range(groups):
        text = GROUP.format(
            g=g, interval=2 + g % 4, shard=g % 4, q=90 + g % 10, hold=2 + g % 7, threshold=10 + g, keep=3 + g % 6,
            offset="query_offset: 1s" if g % 5 == 4 else "limit: 1000",
        )
        with open(os.path.join(directory, "rules%02d.yml" % (g // 5)), "a") as file:
            if file.tell() == 0:
                file.write("groups:\n")
            file.write(text)
        names += ["g%d:%s" % (g, end) for end in RECORDED]
    return groups, names


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


def sent_alerts(receiver):
    """Per alert and start: annotations of the first notification, and the end if it was announced."""
    found = {}
    for at, alert in receiver.alerts():
        key = (harness.label_key(alert["labels"]), harness.milliseconds(alert["startsAt"]))
        state = found.setdefault(key, {"annotations": alert.get("annotations", {}), "url": alert["generatorURL"].split("/graph")[1], "end": None})
        ends_at = harness.milliseconds(alert["endsAt"])
        # A firing alert is valid for four minutes; a resolved one has ended when it is sent.
        if ends_at <= at + 500:
            state["end"] = ends_at
    return found


def start(args, directory):
    rules = os.path.join(directory, "rules")
    os.makedirs(rules)
    groups, names = rule_files(rules, args.rules)
    receivers = [harness.Receiver(29100), harness.Receiver(29110)]
    config = "alerting:\n  alertmanagers:\n  - static_configs: [{targets: ['127.0.0.1:%d']}]\n"
    files = [os.path.join(directory, name) for name in ("ours.yml", "prometheus.yml")]
    with open(files[0], "w") as file:
        file.write(config % receivers[0].port)
    with open(files[1], "w") as file:
        file.write("global: {external_labels: {region: eu}}\nrule_files: ['%s/*.yml']\n" % rules + config % receivers[1].port)
    both = ["--web.external-url", "http://rules.example/base", "--web.route-prefix", "/"]
    lookback = "%ds" % LOOKBACK_SECONDS
    servers = [
        harness.chronolith(
            args.chronolith, directory, wire.free_port(29120), "--rules.files", rules + "/*.yml", "--external-label", "region=eu",
            "--rules.alerting-config", files[0], "--query.lookback", lookback, *both,
        ).start(),
        harness.prometheus(args.prometheus, directory, wire.free_port(29130), files[1], "--query.lookback-delta", lookback, *both).start(),
    ]
    return groups, names, receivers, servers


def send(servers, seconds):
    """Sends the samples; returns first and last second, and the seconds that a server got too late."""
    load, late = Load(), 0
    # Prometheus records no alerts before it has restored them, after the second round of a group.
    first = int(time.time()) + 20
    for second in range(first, first + seconds):
        time.sleep(max(0, second - AHEAD_MS / 1000 - time.time()))
        series = list(load.series(second))
        for server in servers:
            server.write(series)
        late += time.time() > second
    return first, first + seconds, late


def bits(value):
    return struct.pack("<d", float(value)).hex()


def recorded(server, name, first, end):
    """Samples of a metric between the first and the last sample that was sent, by labels: time in ms to value."""
    result = server.get("/api/v1/query", query='{__name__="%s"}[%ds]' % (name, end - first), time=str(end))["result"]
    found = {}
    for series in result:
        points = {round(float(at) * 1000): bits(value) for at, value in series.get("values", [])}
        points.update({round(float(at) * 1000): json.dumps(value, sort_keys=True) for at, value in series.get("histograms", [])})
        found[harness.label_key(series["metric"])] = points
    return found


def is_close(a, b):
    """Returns true for values that differ in their last bits."""
    values = [struct.unpack("<d", bytes.fromhex(text or "00" * 8))[0] for text in (a, b)]
    return None not in (a, b) and math.isclose(*values, rel_tol=1e-14)


def without(labels, *names):
    return tuple(pair for pair in labels if pair[0] not in names)


class Rounds:
    """Rounds of each group by the label `team`: of both servers, and those that one server alone missed."""

    def __init__(self, all_samples):
        times = []
        for found in all_samples:
            of_team = collections.defaultdict(set)
            for by_labels in found.values():
                for labels, points in by_labels.items():
                    of_team[dict(labels)["team"]].update(points)
            times.append(of_team)
        self.teams = sorted(set(times[0]) | set(times[1]))
        self.common = {team: sorted(times[0][team] & times[1][team]) for team in self.teams}
        self.missed = {team: sorted(times[0][team] ^ times[1][team]) for team in self.teams}
        self.by_ours = {team: sorted(times[1][team] - times[0][team]) for team in self.teams}
        # Rounds after which the state of an alert may differ, as one was missed.
        self.unsure = {team: set() for team in self.teams}
        self.unsure_seconds = {}
        self.count = sum(len(times[0][team] | times[1][team]) for team in self.teams)

    def gaps_of_ours(self):
        """Rounds between others that this server did not evaluate; two teams have no other interval than their rounds."""
        gaps = 0
        for team in self.teams:
            ours = sorted(set(self.common[team]) | (set(self.missed[team]) - set(self.by_ours[team])))
            steps = [after - before for before, after in zip(ours, ours[1:])]
            gaps += sum(round(step / min(steps)) - 1 for step in steps)
        return gaps

    def is_unsure(self, team, at_ms):
        """Returns true if what reads alerts or the end of a series at this time may differ."""
        if team not in self.unsure_seconds:
            times = self.unsure[team].union(self.missed[team])
            self.unsure_seconds[team] = {at // 1000 + idx for at in times for idx in range(LOOKBACK_SECONDS + 2)}
        return at_ms // 1000 in self.unsure_seconds[team]


def compare_rounds(args, report, rounds, server):
    missed = [(team, at, "ours" if at in rounds.by_ours[team] else "prometheus") for team in rounds.teams for at in rounds.missed[team]]
    for miss in missed[:5]:
        harness.note("round missed: group %s at %d by %s" % miss)
    harness.note("%d rounds missed by this server alone, %d by Prometheus alone" % (
        sum(who == "ours" for _, _, who in missed), sum(who == "prometheus" for _, _, who in missed)))
    report.check("rounds of both", missed if len(missed) > args.missed_max * rounds.count else [], rounds.count)
    gaps, counted = rounds.gaps_of_ours(), server.metric_sum("chronolith_rule_group_iterations_missed_total")
    report.expect("rounds missed by this server are counted: %d" % gaps, gaps <= counted, (gaps, counted))


class States:
    """States of alerts by labels and round: `pending` or `firing`, and the bits of active-since."""

    def __init__(self, found):
        self.states = collections.defaultdict(lambda: collections.defaultdict(lambda: [(), ()]))
        for labels, points in found["ALERTS"].items():
            for at in points:
                self.states[without(labels, "__name__", "alertstate")][at][0] += (dict(labels)["alertstate"],)
        for labels, points in found["ALERTS_FOR_STATE"].items():
            for at, value in points.items():
                self.states[without(labels, "__name__")][at][1] += (value,)

    def at(self, key, at):
        state = self.states.get(key, {}).get(at)
        return tuple(map(tuple, state)) if state else None


def compare_states(report, rounds, found):
    """Compares ALERTS and ALERTS_FOR_STATE; returns the rounds that are left out, by alert."""
    ours, theirs = (States(one) for one in found)
    keys = sorted(set(ours.states) | set(theirs.states), key=lambda key: (dict(key)["alertname"].startswith("Chain"), key))
    differences, compared, left_out = [], 0, {}
    for key in keys:
        team, name = dict(key)["team"], dict(key)["alertname"]
        of_key = left_out[key] = []
        # An alert over ALERTS is unsure as long as those are.
        source = rounds.unsure[team].copy() if name.startswith("Chain") else set()
        is_unsure, before = False, -1
        for at in rounds.common[team]:
            states = (ours.at(key, at), theirs.at(key, at))
            if any(before < missed < at for missed in rounds.missed[team]) or at in source:
                is_unsure = True
            elif states == (None, None):
                is_unsure = False
            before = at
            if is_unsure:
                of_key.append(at)
                rounds.unsure[team].add(at)
            else:
                compared += states != (None, None)
                if states[0] != states[1]:
                    differences.append((key, at, *states))
    count = sum(len(points) for points in theirs.states.values())
    report.check("alerts of each round: state and active since", differences, compared)
    report.expect("states left out: %d of %d" % (count - compared, count), compared >= STATES_COMPARED_MIN * count)
    return left_out


def compare_samples(report, names, rounds, found):
    differences, count, last_bits = [], 0, 0
    for name in names:
        a, b = found[0][name], found[1][name]
        for labels in set(a) | set(b):
            team = dict(labels)["team"]
            times = set(rounds.common[team])
            if name.split(":", 1)[1] in OF_STATES:
                times = {at for at in times if not rounds.is_unsure(team, at)}
            left = {at: value for at, value in a.get(labels, {}).items() if at in times}
            right = {at: value for at, value in b.get(labels, {}).items() if at in times}
            count += len(set(left) | set(right))
            differing = [at for at in sorted(set(left) | set(right)) if left.get(at) != right.get(at)]
            if name.endswith(":h:q"):
                # Quantiles of native histograms take logarithms: Go and Rust have other last bits.
                last_bits += len(differing)
                differing = [at for at in differing if not is_close(left.get(at), right.get(at))]
                last_bits -= len(differing)
            differences += [(name, labels, at, left.get(at), right.get(at)) for at in differing]
    report.check("recorded samples, bit for bit", differences, count)
    harness.note("%d quantiles of native histograms differ in their last bits" % last_bits)


def compare_steps(report, servers, names, rounds, first, end):
    """Series at each second: staleness markers are in the same rounds."""
    differences, count = [], 0
    for name in names + ["ALERTS"]:
        answers = []
        for server in servers:
            query = 'count by (team, alertname, alertstate) ({__name__="%s"})' % name
            data = server.get("/api/v1/query_range", query=query, start=str(first), end=str(end), step="1")
            answers.append({json.dumps(series["metric"], sort_keys=True): dict(map(tuple, series["values"])) for series in data["result"]})
        for key in set(answers[0]) | set(answers[1]):
            team = json.loads(key)["team"]
            a, b = (answer.get(key, {}) for answer in answers)
            times = [at for at in sorted(set(a) | set(b)) if not rounds.is_unsure(team, at * 1000)]
            count += len(times)
            differences += [(name, key, at, a.get(at), b.get(at)) for at in times if a.get(at) != b.get(at)]
    report.check("series at each second", differences, count)


def compare_alerts(report, receivers, left_out, begin_ms, end_ms):
    unsure = {without(key, "empty"): times for key, times in left_out.items()}

    def sure(found):
        """Alerts whose rounds are all compared, and that begin and end while samples are sent."""
        kept = {}
        for (labels, starts_at), state in found.items():
            times = unsure.get(without(labels, "region"), [])
            last = state["end"] or end_ms
            is_unsure = any(starts_at - 60_000 <= at <= last + 10_000 for at in times)
            if begin_ms < starts_at < end_ms - 2000 and not is_unsure:
                kept[labels, starts_at] = state if state["end"] is None or state["end"] < end_ms else dict(state, end=None)
        return kept

    a, b = (sure(sent_alerts(receiver)) for receiver in receivers)
    differences = [(key, a.get(key), b.get(key)) for key in set(a) | set(b) if a.get(key) != b.get(key)]
    report.check("alerts sent: labels, start, annotations, end", differences, len(b))
    names = collections.Counter(re.sub(r"\d+$", "", dict(labels)["alertname"]) for labels, _ in b)
    report.expect("each kind of alert is among them", len(names) == 6, names)
    report.check("of them resolved", [], sum(1 for state in b.values() if state["end"]))


def compare_lists(report, servers):
    """The groups of /api/v1/rules without what changes with each round."""
    def stable(group):
        rules = [{name: value for name, value in rule.items() if name not in ("alerts", "state", "lastEvaluation", "evaluationTime")} for rule in group["rules"]]
        return dict({name: value for name, value in group.items() if name not in ("lastEvaluation", "evaluationTime")}, rules=rules)

    lists = [{(group["file"], group["name"]): stable(group) for group in server.get("/api/v1/rules")["groups"]} for server in servers]
    differences = [(lists[0].get(key), lists[1].get(key)) for key in set(lists[0]) | set(lists[1]) if lists[0].get(key) != lists[1].get(key)]
    report.check("lists of rules", differences, sum(len(group["rules"]) for group in lists[1].values()))
    unhealthy = [(rule["name"], rule.get("lastError")) for group in lists[1].values() for rule in group["rules"] if rule["health"] != "ok"]
    report.check("rules healthy", unhealthy, len(lists[1]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("prometheus")
    parser.add_argument("--rules", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--missed-max", type=float, default=0.1, help="part of the rounds that a busy machine may cost")
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    directory = harness.work_directory(args.keep)
    report = harness.Report()
    groups, names, receivers, servers = start(args, directory)
    first, end, late = send(servers, args.seconds)
    time.sleep(max(0, end + 12 - time.time()))
    harness.note("%d groups, %d rules, %d s" % (groups, groups * RULES_PER_GROUP, args.seconds))
    report.expect("samples were there before their rounds", not late, "%d s late" % late)
    compare_lists(report, servers)
    found = [{name: recorded(server, name, first, end) for name in names + ["ALERTS", "ALERTS_FOR_STATE"]} for server in servers]
    rounds = Rounds(found)
    compare_rounds(args, report, rounds, servers[0])
    left_out = compare_states(report, rounds, found)
    compare_samples(report, names, rounds, found)
    compare_steps(report, servers, names, rounds, first, end)
    # Alerts of the first half minute may have begun before the first round that is compared.
    compare_alerts(report, receivers, left_out, (first + 30) * 1000, end * 1000)
    for server in servers:
        server.stop()
    report.end()


if __name__ == "__main__":
    main()
