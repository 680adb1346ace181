#!/usr/bin/env python3
"""Rules end to end with real Alertmanagers: alerts fire, are grouped and end.

    alertmanager.py CHRONOLITH [--down 20] [--series 20] [--keep DIR]     (--down 300 in full)

Four Alertmanagers get the alerts of rules that are evaluated each second: a plain one, one with TLS and basic
auth, one that accepts connections and hangs, and one that is down for `--down` seconds and is started then.
While it is down an alert begins each second, and some end. Shown:
- the healthy ones have each alert within a second of the round that fired it, or ended it;
- alerts are grouped by the route, and a webhook of the Alertmanager gets starts and ends;
- the one that was down has all alerts that fire, and none that has ended: nothing is lost or dropped;
- the server stops although one hangs.
Alertmanager is the environment's ALERTMANAGER, or that of Debian (apt-get install prometheus-alertmanager)."""
import argparse
import os
import socket
import subprocess
import sys
import threading
import time

import harness

DELAY_MS_MAX = 1000
# The password is "secret".
WEB_CONFIG = """tls_server_config: {cert_file: am.crt, key_file: am.key}
basic_auth_users: {alice: %s}
"""
PASSWORD_HASH = "$2b$04$0123456789abcdefghijkug0jfygDNbCc4YKM81lye0HjT.L3552O"

RULES = """groups:
- name: one
  interval: 1s
  rules:
  - {alert: Down, expr: 'v{job="down"} == 1', labels: {severity: page}, annotations: {summary: '{{ $labels.instance }} <b>&"é'}}
  - {alert: Slow, expr: 'v{job="slow"} == 1', for: 2s, keep_firing_for: 2s}
  - {alert: Late, expr: 'v{job="late"} == 1'}
"""


class Samples:
    """Current values; a thread writes them each half second."""

    def __init__(self, server):
        self.values, self.lock = {}, threading.Lock()
        self.server, self.client = server, harness.wire.Client("http://127.0.0.1:%d" % server.port)
        threading.Thread(target=self.run, daemon=True).start()

    def set(self, job, instance, value):
        with self.lock:
            self.values[job, instance] = value

    def run(self):
        while True:
            with self.lock:
                values = dict(self.values)
            at = harness.now_ms()
            series = [({"__name__": "v", "job": job, "instance": instance}, [(at, float(value))]) for (job, instance), value in values.items()]
            if series:
                try:
                    self.client.write(series)
                except OSError:
                    return
            time.sleep(0.5)


class Look(threading.Thread):
    """Looks at an Alertmanager all the time: when it first has an alert, and when it is without it again."""

    def __init__(self, alertmanager):
        super().__init__(daemon=True)
        self.alertmanager, self.seen, self.ended = alertmanager, {}, {}

    def run(self):
        while True:
            firing = self.alertmanager.firing()
            at = harness.now_ms()
            for labels, alert in firing.items():
                self.seen.setdefault(labels, (at, harness.milliseconds(alert["startsAt"])))
                self.ended.pop(labels, None)
            for labels in self.seen:
                if labels not in firing:
                    self.ended.setdefault(labels, at)
            time.sleep(0.02)


def put_certificate(directory):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "am.key", "-out", "am.crt", "-days", "2", "-subj", "/CN=am",
         "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
        cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    with open(os.path.join(directory, "web.yml"), "w") as file:
        file.write(WEB_CONFIG % PASSWORD_HASH)
    with open(os.path.join(directory, "password"), "w") as file:
        file.write("secret\n")
    return os.path.join(directory, "web.yml")


def start(args, directory):
    binary = harness.find_alertmanager()
    if not binary:
        print("not run: there is no Alertmanager (apt-get install prometheus-alertmanager)")
        sys.exit(2)
    web_config = put_certificate(directory)
    webhook = harness.Receiver(29300)
    plain = harness.Alertmanager(binary, directory, harness.wire.free_port(29310), webhook.port).start()
    encrypted = harness.Alertmanager(binary, directory, harness.wire.free_port(29320), web_config=web_config).start()
    down = harness.Alertmanager(binary, directory, harness.wire.free_port(29330))
    hanging = socket.create_server(("127.0.0.1", 0))
    config = os.path.join(directory, "alerting.yml")
    with open(config, "w") as file:
        file.write(
            "alerting:\n  alertmanagers:\n  - static_configs: [{targets: ['127.0.0.1:%d', '127.0.0.1:%d', '127.0.0.1:%d']}]\n"
            "  - scheme: https\n    tls_config: {ca_file: am.crt}\n    basic_auth: {username: alice, password_file: password}\n"
            "    static_configs: [{targets: ['127.0.0.1:%d']}]\n"
            % (plain.port, hanging.getsockname()[1], down.port, encrypted.port)
        )
    rules = os.path.join(directory, "rules.yml")
    with open(rules, "w") as file:
        file.write(RULES)
    server = harness.chronolith(
        args.chronolith, directory, harness.wire.free_port(29340), "--rules.files", rules, "--rules.alerting-config", config,
        "--rules.alert.resend-delay", "10s",
    ).start()
    return server, webhook, plain, encrypted, down, hanging


def check_delays(report, server, looks):
    """The time from a round that fires an alert to the look that shows it."""
    for name, look in looks.items():
        delays = [at - starts_at for at, starts_at in look.seen.values()]
        late = [(labels, at - starts_at) for labels, (at, starts_at) in look.seen.items() if at - starts_at >= DELAY_MS_MAX]
        report.check("%s: alerts within a second of their round" % name, late, len(delays))
        harness.note("%s: median %d ms, at most %d ms" % (name, harness.quantile(delays, 0.5), max(delays)))


def check_ends(report, name, look, ended):
    """An alert that has ended is gone a second and two rounds later."""
    late = [(labels, at - ended[dict(labels)["instance"]]) for labels, at in look.ended.items() if at - ended[dict(labels)["instance"]] > DELAY_MS_MAX + 2500]
    report.check("%s: ends" % name, late + [instance for instance in ended if instance not in {dict(labels)["instance"] for labels in look.ended}], len(ended))


def check_groups(report, plain, want):
    groups = plain.get("alerts/groups") or []
    sizes = {group["labels"]["alertname"]: len(group["alerts"]) for group in groups}
    report.expect("grouped by the route", sizes == want, (sizes, want))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("--down", type=int, default=20, help="seconds for which one Alertmanager is down")
    parser.add_argument("--series", type=int, default=20, help="alerts of the rules Down and Slow")
    parser.add_argument("--keep", help="directory that stays")
    args = parser.parse_args()
    directory = harness.work_directory(args.keep)
    report = harness.Report()
    server, webhook, plain, encrypted, down, hanging = start(args, directory)
    looks = {"plain": Look(plain), "TLS and basic auth": Look(encrypted)}
    samples = Samples(server)
    for look in looks.values():
        look.start()
    for idx in range(args.series):
        samples.set("down", "down-%d" % idx, 1)
        samples.set("slow", "slow-%d" % idx, 1)
    all_fire = lambda: all(len(look.seen) == 2 * args.series for look in looks.values())
    report.expect("alerts fire", harness.wait_until(all_fire, 30), {name: len(look.seen) for name, look in looks.items()})
    grouped = lambda: len(plain.get("alerts/groups") or []) == 2
    harness.wait_until(grouped, 10)
    check_groups(report, plain, {"Down": args.series, "Slow": args.series})
    shown = [alert for labels, alert in plain.firing().items() if ("instance", "down-1") in labels]
    report.expect("annotations", shown and shown[0]["annotations"] == {"summary": 'down-1 <b>&"é'}, shown)

    ended = {}
    for second in range(args.down):
        samples.set("late", "late-%d" % second, 1)
        if second % 4 == 3:
            # Alerts that were sent before, and those that begin while one Alertmanager is down.
            name = ("down", "down-%d" % (second // 4)) if second % 8 == 3 and second // 4 < args.series else ("late", "late-%d" % (second - 3))
            samples.set(*name, 0)
            ended[name[1]] = harness.now_ms()
        time.sleep(1)
    time.sleep(4)
    firing_count = 2 * args.series + args.down - len(ended)
    for name, look in looks.items():
        report.expect("%s: alerts that fire" % name, len(look.alertmanager.firing()) == firing_count, (len(look.alertmanager.firing()), firing_count))
        check_ends(report, name, look, ended)
    check_delays(report, server, looks)
    url = "127.0.0.1:%d/" % down.port
    queued = server.metric_sum("chronolith_notifications_queue_length", url)
    down.start()
    begun = time.time()
    want = set(plain.firing())
    same = lambda: set(down.firing()) == set(plain.firing())
    report.expect("the one that was down %d s has all alerts, and none that has ended" % args.down, harness.wait_until(same, 30), set(down.firing()) ^ want)
    harness.note("%d alerts waited for it; it had all %.1f s after its start" % (queued, time.time() - begun))
    dropped = server.metric_sum("chronolith_notifications_dropped_total")
    report.expect("dropped alerts: none", dropped == 0, dropped)
    resolved = {alert["labels"]["instance"] for _, body in webhook.received for alert in body["alerts"] if alert["status"] == "resolved"}
    report.check("ends in the webhook of the Alertmanager", set(ended) ^ resolved, len(resolved))
    begun = time.time()
    server.stop()
    report.expect("stop within 10 s beside one that hangs", time.time() - begun < 10, time.time() - begun)
    hanging.close()
    report.end()


if __name__ == "__main__":
    main()
