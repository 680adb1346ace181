#!/usr/bin/env python3
"""SIGKILL at random moments while rules and alerts are evaluated each second: nothing begins anew.

    kill.py CHRONOLITH [--kills 20] [--groups 3] [--seed 1] [--keep DIR]

Samples are functions of the time and are written a minute ahead, so each round has one right result. The kit
knows the state machine of alerts and compares, over all rounds of all processes:
- each recording rule has its value at each round time: none is missing, none has another value;
- ALERTS and ALERTS_FOR_STATE of each round: no clock of `for` or `keep_firing_for` starts anew;
- each notification that an Alertmanager of the kit received: start, end, and that no alert which fires is
  announced as resolved or runs out, none fires again after its end, and none is forgotten;
- a real Alertmanager, if there is one, shows the alert that fires all the time at each look at it.
The server is killed before it is ready, while it catches up, and afterwards. Rounds that a busy machine has cost
are counted by the server; the kit takes no more missing ones than those."""
import argparse
import collections
import math
import os
import random
import threading
import time

import harness

RESEND_SECONDS = 3
# Samples are written this far ahead.
AHEAD_SECONDS = 150
STALE_AHEAD_SECONDS = 90
# An alert is announced within this time, the server being down and killed between.
ANNOUNCED_WITHIN_MS = 20_000

GROUP = """- name: group {g}
  interval: 1s
  rules:
  - {{record: 'g{g}:time', expr: time()}}
  - {{record: 'g{g}:wave', expr: 'sum(v{{kind="wave"}})'}}
  - {{record: 'g{g}:chain', expr: 'g{g}:wave * 2 + {g}'}}
  - {{record: 'g{g}:end', expr: 'g{g}:chain + 0.5'}}
  - {{record: 'g{g}:part', expr: 'v{{kind="wave"}} >= 5'}}
  - {{alert: 'Steady{g}', expr: 'v{{kind="steady"}} > 0', labels: {{severity: page}}, annotations: {{at: '{{{{ $value }}}}'}}}}
  - {{alert: 'Held{g}', expr: 'v{{kind="steady"}} > 0', for: 6h}}
  - {{alert: 'Wave{g}', expr: 'v{{kind="wave"}} >= 5', for: 3s, keep_firing_for: 4s}}
  - {{alert: 'Kept{g}', expr: 'v{{kind="spike"}} == 1', keep_firing_for: 45s}}
  - {{alert: 'Flash{g}', expr: 'v{{kind="flash"}} == 1'}}
"""

# Alert to kind of its series, condition on the value, `for` and `keep_firing_for` in milliseconds.
ALERTS = {
    "Steady": ("steady", lambda value: value > 0, 0, 0),
    "Held": ("steady", lambda value: value > 0, 6 * 3_600_000, 0),
    "Wave": ("wave", lambda value: value >= 5, 3000, 4000),
    "Kept": ("spike", lambda value: value == 1, 0, 45_000),
    "Flash": ("flash", lambda value: value == 1, 0, 0),
}


def sample(kind, second):
    """Value of a series at a second."""
    if kind == "wave":
        # The pause between two alerts is longer than an outage.
        phase = second % 40
        return phase if phase < 25 else 0
    if kind == "spike":
        return 1 if second % 90 < 2 else 0
    if kind == "flash":
        return 1 if second % 10 < 2 else 0
    return 1


def is_active(alert, at_ms):
    kind, condition, _, _ = ALERTS[alert]
    return condition(sample(kind, at_ms // 1000))


def wave(at_ms):
    return sample("wave", at_ms // 1000)


# Recording rule to its value in a round of a group; None for no sample.
RECORDED = {
    "time": lambda g, at_ms: at_ms / 1000,
    "wave": lambda g, at_ms: wave(at_ms),
    "chain": lambda g, at_ms: wave(at_ms) * 2 + g,
    "end": lambda g, at_ms: wave(at_ms) * 2 + g + 0.5,
    "part": lambda g, at_ms: wave(at_ms) if wave(at_ms) >= 5 else None,
}


class Writer(threading.Thread):
    """Writes the samples ahead; a request counts once it is acknowledged. Only the first one may be late."""

    def __init__(self, server, first):
        super().__init__(daemon=True)
        self.server, self.until, self.late = server, first, -1
        # A connection of its own.
        self.client = harness.wire.Client("http://127.0.0.1:%d" % server.port, timeout=10)

    def write_ahead(self):
        end = int(time.time()) + AHEAD_SECONDS
        seconds = range(self.until, end)
        series = [
            ({"__name__": "v", "kind": kind}, [(second * 1000, float(sample(kind, second))) for second in seconds])
            for kind in ("steady", "wave", "spike", "flash")
        ]
        status, _, _ = self.client.write(series)
        if status // 100 == 2:
            self.late += self.until < time.time()
            self.until = end

    def run(self):
        while True:
            if self.until < time.time() + STALE_AHEAD_SECONDS:
                try:
                    self.write_ahead()
                except OSError:
                    pass
            time.sleep(0.3)


class Watch(threading.Thread):
    """Looks at the server and the real Alertmanager all the time."""

    def __init__(self, server, groups, alertmanager):
        super().__init__(daemon=True)
        self.server, self.groups, self.alertmanager = server, groups, alertmanager
        self.client = harness.wire.Client("http://127.0.0.1:%d" % server.port, timeout=10)
        self.life, self.missed, self.caught_up, self.lost = 0, {}, {}, {}
        self.unhealthy, self.gone, self.looks = set(), [], 0
        self.first_answers, self.is_started = [], False

    def run(self):
        while True:
            life = self.life
            try:
                status, answer = self.client.api("/api/v1/rules", {"extended": "1"}, post=False)
                if status == 200 and life == self.life:
                    self.look(life, answer["data"]["groups"])
            except OSError:
                pass
            if self.alertmanager and self.is_started:
                names = {dict(key)["alertname"] for key in self.alertmanager.firing()}
                self.looks += 1
                self.gone += [(time.time(), "Steady%d" % g) for g in range(self.groups) if "Steady%d" % g not in names]
            time.sleep(0.2)

    def look(self, life, groups):
        self.missed[life] = sum(group["missedRounds"] for group in groups)
        self.caught_up[life] = sum(group["caughtUpRounds"] for group in groups)
        self.lost[life] = sum(group["lostRounds"] for group in groups)
        for group in groups:
            for rule in group["rules"]:
                if rule["health"] == "err":
                    self.unhealthy.add((rule["name"], rule["lastError"]))


def start(args, directory):
    rules = os.path.join(directory, "rules")
    os.makedirs(rules, exist_ok=True)
    receiver, webhook = harness.Receiver(29200), harness.Receiver(29210)
    targets = ["127.0.0.1:%d" % receiver.port]
    binary = harness.find_alertmanager()
    alertmanager = None
    if binary:
        alertmanager = harness.Alertmanager(binary, directory, harness.wire.free_port(29220), webhook.port).start()
        targets.append("127.0.0.1:%d" % alertmanager.port)
    config = os.path.join(directory, "alerting.yml")
    with open(config, "w") as file:
        file.write("alerting:\n  alertmanagers:\n  - static_configs: [{targets: %s}]\n" % targets)
    server = harness.chronolith(
        args.chronolith, directory, harness.wire.free_port(29230), "--rules.files", rules + "/*.yml", "--rules.alerting-config", config,
        "--rules.alert.resend-delay", "%ds" % RESEND_SECONDS,
    ).start()
    writer = Writer(server, int(time.time()) - 5)
    writer.write_ahead()
    with open(os.path.join(rules, "rules.yml"), "w") as file:
        file.write("groups:\n" + "".join(GROUP.format(g=g) for g in range(args.groups)))
    status, text = server.reload()
    assert status == 200, text
    return server, writer, receiver, webhook, alertmanager


def kill_often(args, server, watch):
    rng = random.Random(args.seed)
    early = ready = 0
    was_early = False
    for life in range(args.kills):
        is_early = not was_early and rng.random() < 0.4
        was_early = is_early
        if is_early:
            early += 1
            time.sleep(rng.uniform(0, 1.5))
        else:
            assert server.client.wait_ready(seconds=120), "the server does not start, see %s" % server.log
            watch.first_answers.append(server.get("/api/v1/alerts")["alerts"])
            ready += 1
            time.sleep(rng.uniform(0, 3))
        server.kill()
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0, 2))
        watch.life = life + 1
        server.launch()
        if (life + 1) % 20 == 0:
            harness.note("%d kills" % (life + 1))
    assert server.client.wait_ready(seconds=120), "the server does not start, see %s" % server.log
    harness.note("%d kills before the server was ready or soon after its start, %d later" % (early, ready))


def samples_of(server, name, first, end):
    """Samples of a metric by labels: time in milliseconds to value."""
    query = '{__name__="%s"}[%ds]' % (name, end - first)
    result = server.get("/api/v1/query", query=query, time=str(end))["result"]
    return {harness.label_key(series["metric"]): {round(float(at) * 1000): float(value) for at, value in series["values"]} for series in result}


def simulate(alert, rounds):
    """State and active-since of an alert in each round, and its episodes: fired at, resolved at or None."""
    _, _, hold, keep = ALERTS[alert]
    state = active_at = since = None
    states, episodes = {}, []
    for at in rounds:
        if is_active(alert, at):
            if state is None:
                state, active_at = "pending", at
            since = None
        elif state == "pending":
            state = None
        elif state == "firing":
            since = at if since is None else since
            if at - since >= keep:
                state = None
                episodes[-1][1] = at
        if state == "pending" and at - active_at >= hold:
            state = "firing"
            since = None
            episodes.append([at, None])
        states[at] = (state, active_at)
    return states, episodes


def check_rounds(report, watch, found):
    """Returns the rounds of each group."""
    rounds, missing, count = [], [], 0
    for g, by_labels in enumerate(found):
        times = sorted(at for points in by_labels.values() for at in points)
        count += len(times)
        missing += [(g, at, later) for at, later in zip(times, times[1:]) if later - at != 1000]
        rounds.append(times)
    busy = sum(watch.missed.values())
    lost = sum((later - at) // 1000 - 1 for _, at, later in missing)
    if busy:
        harness.note("%d rounds missed by the server, as the machine was busy: allowed to be missing" % busy)
    report.check("rounds without a gap, of %d groups" % len(found), missing if lost > busy else [], count)
    report.check("rounds caught up", [] if sum(watch.caught_up.values()) else ["none"], sum(watch.caught_up.values()))
    report.expect("rounds given up after a start: none", not sum(watch.lost.values()), watch.lost)
    return rounds


def check_recorded(report, server, rounds, first, end):
    differences, count = [], 0
    for g, times in enumerate(rounds):
        for name, value in RECORDED.items():
            by_labels = samples_of(server, "g%d:%s" % (g, name), first, end)
            points = {at: value for series in by_labels.values() for at, value in series.items()}
            for at in sorted(set(times) | set(points)):
                count += 1
                want = value(g, at) if at in times else None
                if points.get(at) != want:
                    differences.append(("g%d:%s" % (g, name), at, points.get(at), want))
    report.check("recorded samples", differences, count)


def check_alerts(report, server, rounds, first, end):
    """Compares ALERTS and ALERTS_FOR_STATE; returns episodes by name of the alert."""
    found = {name: samples_of(server, name, first, end) for name in ("ALERTS", "ALERTS_FOR_STATE")}
    differences, count, all_episodes = [], 0, {}
    for g, times in enumerate(rounds):
        for alert in ALERTS:
            name = "%s%d" % (alert, g)
            states, all_episodes[name] = simulate(alert, times)
            seen, since = collections.defaultdict(list), collections.defaultdict(list)
            for labels, points in found["ALERTS"].items():
                if dict(labels)["alertname"] == name:
                    for at in points:
                        seen[at].append(dict(labels)["alertstate"])
            for labels, points in found["ALERTS_FOR_STATE"].items():
                if dict(labels)["alertname"] == name:
                    for at, value in points.items():
                        since[at].append(value)
            for at in sorted(set(times) | set(seen) | set(since)):
                state, active_at = states.get(at, (None, None))
                count += 1
                want = ([state], [float(active_at // 1000)]) if state else ([], [])
                if (seen.get(at, []), since.get(at, [])) != want:
                    differences.append((name, at, seen.get(at), since.get(at), want))
    report.check("alerts of each round: state and active since", differences, count)
    return all_episodes


def check_notifications(report, receiver, episodes, end_ms):
    by_name = collections.defaultdict(list)
    for at, alert in receiver.alerts():
        if at > end_ms:
            continue
        by_name[alert["labels"]["alertname"]].append((at, harness.milliseconds(alert["startsAt"]), harness.milliseconds(alert["endsAt"])))
    wrong, run_out, forgotten, count, resolved, delays = [], [], [], 0, 0, []
    for name, runs in sorted(episodes.items()):
        sent = by_name.get(name, [])
        count += len(sent)
        ends = dict(map(tuple, runs))
        closed = set()
        for at, starts_at, ends_at in sent:
            if starts_at not in ends:
                wrong.append((name, "starts at no round in which it fired", starts_at, at))
            elif ends_at == ends[starts_at] and ends_at <= at:
                closed.add(starts_at)
            elif ends_at <= at:
                wrong.append((name, "announced as resolved", starts_at, ends_at, at))
            elif starts_at in closed:
                wrong.append((name, "fires again after its end was announced", starts_at, at))
        resolved += len(closed)
        for idx, (fired_at, resolved_at) in enumerate(runs):
            after = runs[idx + 1][0] if idx + 1 < len(runs) else end_ms
            firing = [(at, ends_at) for at, starts_at, ends_at in sent if starts_at == fired_at and ends_at > at]
            if (resolved_at or end_ms) - fired_at > ANNOUNCED_WITHIN_MS and not firing:
                forgotten.append((name, "never announced", fired_at))
            if resolved_at and after - resolved_at > ANNOUNCED_WITHIN_MS and firing and fired_at not in closed:
                forgotten.append((name, "end never announced", fired_at, resolved_at))
            delays += [firing[0][0] - fired_at] if firing else []
            run_out += [(name, ends_at, at) for (_, ends_at), (at, _) in zip(firing, firing[1:]) if at > ends_at]
    report.check("notifications: starts, ends", wrong, count)
    report.check("alerts that fire do not run out", run_out, count)
    report.check("alerts announced, %d ends among them" % resolved, forgotten, len(delays))
    harness.note("from a round to its first notification: median %d ms, at most %d ms" % (harness.quantile(delays, 0.5), max(delays or [math.nan])))


def check_webhook(report, webhook, episodes, end_ms):
    """Notifications of the real Alertmanager: nothing is resolved while it fires."""
    wrong, count = [], 0
    for at, body in list(webhook.received):
        for alert in body["alerts"]:
            if at > end_ms:
                continue
            count += 1
            name, ends_at = alert["labels"]["alertname"], harness.milliseconds(alert["endsAt"])
            fires = any(fired_at <= ends_at and (resolved_at is None or ends_at < resolved_at) for fired_at, resolved_at in episodes[name])
            if alert["status"] == "resolved" and fires:
                wrong.append((name, alert["startsAt"], alert["endsAt"]))
    report.check("real Alertmanager: notifications", wrong, count)


def check_first_answers(report, watch, groups, episodes):
    """The lists of a server that is ready have the alerts that fire."""
    want = {"Steady%d" % g for g in range(groups)}
    missing = [sorted(want - {alert["labels"]["alertname"] for alert in answer if alert["state"] == "firing"}) for answer in watch.first_answers]
    report.check("alerts that fire are listed once the server is ready", [names for names in missing if names], len(missing))


def check_log(report, server):
    """Lines of the log that a kill does not explain."""
    lines = [line for line in server.log_text().splitlines() if (" WARN " in line or "ERROR" in line or "panicked" in line)]
    report.check("log without failures of rules", [line for line in lines if "rule" in line], len(server.log_text()))
    for line in [line for line in lines if "rule" not in line][:5]:
        harness.note("log: " + line[:200])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    directory = harness.work_directory(args.keep)
    report = harness.Report()
    first = int(time.time())
    server, writer, receiver, webhook, alertmanager = start(args, directory)
    watch = Watch(server, args.groups, alertmanager)
    writer.start()
    watch.start()
    steady = {"Steady%d" % g for g in range(args.groups)}
    announced = lambda: steady <= {alert["labels"]["alertname"] for _, alert in receiver.alerts()}
    assert harness.wait_until(announced, 60), "alerts do not fire, see %s" % server.log
    if alertmanager:
        assert harness.wait_until(lambda: steady <= {dict(key)["alertname"] for key in alertmanager.firing()}, 60), "not in the Alertmanager"
    else:
        harness.note("no real Alertmanager: apt-get install prometheus-alertmanager, or ALERTMANAGER=BINARY")
    watch.is_started = True
    kill_often(args, server, watch)
    # All ends are announced, and the rounds of the last outage are made up.
    time.sleep(ANNOUNCED_WITHIN_MS / 1000)
    # Rounds of the last seconds may be on their way.
    end = int(time.time()) - 3
    harness.note("%d kills in %d s" % (args.kills, end - first))
    found = [samples_of(server, "g%d:time" % g, first, end) for g in range(args.groups)]
    rounds = check_rounds(report, watch, found)
    check_recorded(report, server, rounds, first, end)
    episodes = check_alerts(report, server, rounds, first, end)
    check_notifications(report, receiver, episodes, end * 1000)
    if alertmanager:
        check_webhook(report, webhook, episodes, end * 1000)
        report.check("real Alertmanager: looks at it with all alerts that fire", watch.gone, watch.looks)
    check_first_answers(report, watch, args.groups, episodes)
    report.expect("rules healthy", not watch.unhealthy, sorted(watch.unhealthy)[:5])
    report.expect("samples ahead of their rounds", not writer.late, "%d requests" % writer.late)
    rejected = server.metric_sum("chronolith_rule_rejected_samples_total")
    report.expect("rejected samples of the last process: none", rejected == 0, rejected)
    check_log(report, server)
    server.stop()
    report.end()


if __name__ == "__main__":
    main()
