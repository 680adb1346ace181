#!/usr/bin/env python3
"""Record what Prometheus answers about rules.yml, for the test of /api/v1/rules and /api/v1/alerts.

    record.py /path/to/prometheus

Each line of answers.txt is a path, a status and a body. All are of the same moment: after the second round of
the groups of 15 s, and before the third.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
PORT = 19590
PATHS = [
    "/api/v1/rules",
    "/api/v1/rules?exclude_alerts=true",
    "/api/v1/rules?type=record",
    "/api/v1/rules?type=alert&rule_name[]=Firing&rule_name[]=Later",
    "/api/v1/rules?rule_group[]=later",
    "/api/v1/rules?file[]=rules.yml&rule_name[]=job:up:sum",
    "/api/v1/rules?file[]=none",
    "/api/v1/rules?rule_name[]=",
    "/api/v1/rules?match[]={team=\"a%3Cb%3E\"}",
    "/api/v1/rules?match[]={severity=\"page\"}&match[]={team=~\".%2B\"}",
    "/api/v1/rules?group_limit=1",
    "/api/v1/rules?group_limit=1&type=record",
    "/api/v1/rules?group_limit=3",
    "/api/v1/rules?group_limit=2&group_next_token=x",
    "/api/v1/rules?group_limit=2&group_next_token=%3C'%3E",
    "/api/v1/alerts",
]


def get(path):
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (PORT, path), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def rounds(text):
    groups = json.loads(text)["data"]["groups"]
    return [(group["name"], group["lastEvaluation"]) for group in groups]


def main():
    with tempfile.TemporaryDirectory() as work:
        shutil.copy(os.path.join(HERE, "rules.yml"), work)
        with open(os.path.join(work, "prometheus.yml"), "w") as config:
            config.write("rule_files: [rules.yml]\n")
        command = [sys.argv[1], "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                   "--web.listen-address=127.0.0.1:%d" % PORT]
        server = subprocess.Popen(command, cwd=work, stderr=subprocess.DEVNULL, env=dict(os.environ, TZ="UTC"))
        try:
            wait_and_record()
        finally:
            server.terminate()
            server.wait()


def wait_and_record():
    deadline = time.time() + 60
    while time.time() < deadline:
        time.sleep(0.25)
        try:
            before = get("/api/v1/rules")[1]
        except OSError:
            continue
        kept = [rule for group in json.loads(before)["data"]["groups"] for rule in group["rules"]
                if rule["name"] == "Kept"]
        recorded = [time_ for name, time_ in rounds(before) if name == "recorded"]
        if "keepFiringSince" not in json.dumps(kept) or recorded[0].startswith("0001"):
            continue
        token = json.loads(get("/api/v1/rules?group_limit=1")[1])["data"]["groupNextToken"]
        paths = PATHS + ["/api/v1/rules?group_limit=1&group_next_token=" + token]
        lines = ["%s %d %s" % ((path,) + get(path)) for path in paths]
        if rounds(get("/api/v1/rules")[1]) == rounds(before):
            with open(os.path.join(HERE, "answers.txt"), "w") as answers:
                answers.write("\n".join(lines) + "\n")
            return
    sys.exit("no moment without a round")


main()
