"""Servers, blocks, questions and comparison of the kits that read and upload blocks in a bucket."""
import atexit
import json
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

RESULTS = []
START = 1_700_006_400
STEP = 60
HOURS = 27
BUCKET, ACCESS, SECRET = "metrics", "test-access", "test-secret"


def check(name, why):
    RESULTS.append((name, why is None, why))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(argv, log, env=None):
    process = subprocess.Popen(argv, stdout=log, stderr=log, env=dict(os.environ, **(env or {})))
    atexit.register(process.kill)
    return process


def wait_for(url, process):
    for _ in range(300):
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except urllib.error.HTTPError as error:
            # An S3 server refuses a request without a signature: it answers.
            if error.code == 403:
                return b""
        except OSError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("no answer from %s" % url)


def openmetrics(path, hours, seed):
    rng = random.Random(seed)
    with open(path, "w") as out:
        for name, kind in [("requests", "counter"), ("temperature", "gauge"), ("queue", "gauge")]:
            out.write("# TYPE %s %s\n" % (name, kind))
            sample = name + ("_total" if kind == "counter" else "")
            for pod in range(25):
                level = 0.0
                for i in range(hours[0] * 60, hours[1] * 60):
                    if kind == "counter":
                        level = 0.0 if rng.random() < 0.001 else level + rng.randrange(50)
                    elif name == "temperature":
                        level = 20 + 5 * math.sin(i / 200 + pod) + rng.random()
                    else:
                        level = float(rng.randrange(8))
                    if rng.random() < 0.01:
                        continue
                    labels = 'pod="pod-%d",zone="z%d",path="/api/%d"' % (pod, pod % 3, pod % 7)
                    out.write("%s{%s} %r %d\n" % (sample, labels, level, START + i * STEP))
        out.write("# EOF\n")


def make_blocks(promtool, directory, hours, seed):
    text = os.path.join(tempfile.mkdtemp(dir=os.path.dirname(directory)), "samples.txt")
    openmetrics(text, hours, seed)
    argv = [promtool, "tsdb", "create-blocks-from", "openmetrics", text, directory]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def blocks_of(directory):
    return sorted(name for name in os.listdir(directory) if os.path.exists(os.path.join(directory, name, "meta.json")))


def get(base, path, **parameters):
    """Status, parsed body, seconds."""
    url = base + path + "?" + urllib.parse.urlencode(parameters, doseq=True)
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.load(answer), time.monotonic() - begun
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}"), time.monotonic() - begun


def canonical(data):
    if isinstance(data, dict) and "result" in data:
        return json.dumps(sorted((json.dumps(one, sort_keys=True) for one in data["result"])
                                 if isinstance(data["result"], list) else [data["result"]]))
    if isinstance(data, list):
        return json.dumps(sorted(json.dumps(one, sort_keys=True) for one in data))
    return json.dumps(data, sort_keys=True)


def questions(is_any_version):
    end = START + HOURS * 3600
    at = {"time": START + 13 * 3600 + 31}
    day = {"start": START, "end": end, "step": 600}
    hour = {"start": START + 7 * 3600 - 1800, "end": START + 7 * 3600 + 1800, "step": 15}
    all_series = {"start": START, "end": end}
    # Prometheus 3 changed the ends of ranges and how sums are added.
    of_all_versions = [
        "queue", "temperature{pod=\"pod-3\"}", "count(queue) by (path)", "absent(nothing)",
        "requests_total{pod=~\".*7\"} offset 1h", "{zone=\"z0\",pod!~\"pod-[0-9]\"}",
        "timestamp(queue{pod=\"pod-1\"})", "max by (zone) (temperature)", "sum(queue)",
    ]
    of_version_3 = [
        "sum by (zone) (rate(requests_total[5m]))", "max_over_time(temperature{zone=~\"z[12]\"}[1h])",
        "topk(3, sum by (pod) (increase(requests_total[30m])))", "quantile_over_time(0.9, queue{path!=\"/api/2\"}[2h])",
        "avg(temperature) - avg(queue)", "changes(queue[1h]) > 40",
    ]
    expressions = of_all_versions if is_any_version else of_all_versions + of_version_3
    for text in expressions:
        yield "query %s" % text, "/api/v1/query", dict(at, query=text)
        yield "day of %s" % text, "/api/v1/query_range", dict(day, query=text)
        yield "hour of %s" % text, "/api/v1/query_range", dict(hour, query=text)
    yield "series", "/api/v1/series", dict(all_series, **{"match[]": ["queue{pod=~\"pod-1.*\"}", "temperature{zone=\"z1\"}"]})
    yield "label names", "/api/v1/labels", all_series
    yield "label names of a metric", "/api/v1/labels", dict(all_series, **{"match[]": "queue"})
    for name in ["__name__", "pod", "zone", "none"]:
        yield "values of " + name, "/api/v1/label/%s/values" % name, all_series
        yield "values of %s of a metric" % name, "/api/v1/label/%s/values" % name, dict(all_series, **{"match[]": "queue{zone=\"z2\"}"})


def without_labels(data, names):
    """An answer without some labels; label names and series as well."""
    if isinstance(data, dict):
        return {key: without_labels(value, names) for key, value in data.items() if key not in names}
    if isinstance(data, list):
        return [without_labels(one, names) for one in data if not (isinstance(one, str) and one in names)]
    return data


def compare(label, want, found, is_any_version=False, added=()):
    """`added` are names of labels that only the answers of `found` have."""
    for name, path, parameters in questions(is_any_version):
        a, b = get(want, path, **parameters), get(found, path, **parameters)
        b = (b[0], without_labels(b[1], added), b[2]) if added else b
        why = None
        if a[0] != b[0]:
            why = "status %d instead of %d: %s" % (b[0], a[0], b[1])
        elif canonical(a[1].get("data")) != canonical(b[1].get("data")):
            why = "%.300s instead of %.300s" % (canonical(b[1].get("data")), canonical(a[1].get("data")))
        check("%s: %s" % (label, name), why)


class Chronolith:
    """A server over a bucket or a data directory."""

    def __init__(self, server, flags, log):
        port = free_port()
        self.base = "http://127.0.0.1:%d" % port
        self.process = start([server, "serve", "--http", "127.0.0.1:%d" % port] + flags, log)
        wait_for(self.base + "/-/ready", self.process)


def start_gateway(arguments, log):
    argv = [arguments.versitygw, "--port", "127.0.0.1:%d" % arguments.s3_port, "posix", arguments.s3_root]
    process = start(argv, log, {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET})
    wait_for("http://127.0.0.1:%d/" % arguments.s3_port, process)
    return process


def s3_flags(arguments):
    return ["--bucket", "s3://" + BUCKET, "--bucket.endpoint", "http://127.0.0.1:%d" % arguments.s3_port, "--bucket.allow-http",
            "--bucket.region", "us-east-1", "--bucket.access-key-id", ACCESS, "--bucket.secret-access-key", SECRET]


def report(log):
    """Prints failures and ends the process."""
    failed = [(name, why) for name, ok, why in RESULTS if not ok]
    for name, why in failed:
        print("FAILED %s: %s" % (name, why))
    if failed:
        log.flush()
        print(open(log.name).read()[-3000:])
    print("%d passed, %d failed" % (len(RESULTS) - len(failed), len(failed)))
    sys.exit(1 if failed else 0)
