#!/usr/bin/env python3
"""Send the same requests to this server and to a real Prometheus, and compare the answers.

Both are started here with empty directories, take the same series by remote
write, and are asked the same: status, Content-Type and body have to be equal.
Bodies are compared as JSON where they are JSON, so the order of fields is free.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from tsdbwire import FH, Client, f_bytes, f_varint, free_port, snappy, unsnappy, varint  # noqa: E402

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STEP_MS = 15_000
SAMPLES = 40


class Pair:
    """Two servers that should answer alike."""

    def __init__(self, args, folder, features):
        self.processes = []
        base = 20000 + os.getpid() % 20000
        ours, theirs = free_port(base), free_port(base + 100)
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w") as out:
            out.write("global: {scrape_interval: 15s}\n")
        flags = ["--enable-feature=" + features] if features else []
        self.start(folder, "ours", [args.server, "serve", "--data-dir", os.path.join(folder, "ours"),
                                    "--http", "127.0.0.1:%d" % ours, "--self-scrape", "off",
                                    "--web.enable-admin-api"] + flags)
        self.start(folder, "theirs", [args.prometheus, "--config.file=" + config,
                                      "--storage.tsdb.path=" + os.path.join(folder, "theirs"),
                                      "--web.listen-address=127.0.0.1:%d" % theirs,
                                      "--web.enable-remote-write-receiver", "--web.enable-admin-api"] + flags)
        self.ours = Client("http://127.0.0.1:%d" % ours)
        self.theirs = Client("http://127.0.0.1:%d" % theirs)
        for client in (self.ours, self.theirs):
            assert client.wait_ready(), "a server does not start: see %s" % folder

    def start(self, folder, name, command):
        with open(os.path.join(folder, name + ".log"), "w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def write(self, series):
        for client in (self.ours, self.theirs):
            status, _, body = client.write(series, proto=2)
            assert status // 100 == 2, (status, body)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Report:
    def __init__(self, verbose):
        self.passed, self.failed, self.verbose = 0, 0, verbose

    def add(self, name, ours, theirs):
        if ours == theirs:
            self.passed += 1
            if self.verbose:
                print("ok   %s: %s" % (name, str(ours)[:200]))
        else:
            self.failed += 1
            print("FAIL %s\n  ours   %s\n  theirs %s" % (name, str(ours)[:600], str(theirs)[:600]))


def ask(client, method, path, params, headers=None):
    text = urllib.parse.urlencode(params, doseq=True)
    if method == "POST":
        return client.request("POST", path, text, dict(FORM, **(headers or {})))
    return client.request(method, path + ("?" + text if text else ""), None, headers or {})


def shown(answer):
    """Status, type and body; JSON is decoded."""
    status, headers, body = answer
    kind = headers.get("Content-Type", "")
    if kind.startswith("application/json"):
        body = json.loads(body)
        if isinstance(body.get("warnings"), list):
            body["warnings"].sort()
    return status, kind, body


def compare(report, pair, path, params=(), methods=("GET",), headers=None, name=""):
    for method in methods:
        answers = [shown(ask(client, method, path, params, headers)) for client in (pair.ours, pair.theirs)]
        report.add("%s%s %s %s" % (name, method, path, urllib.parse.urlencode(params, doseq=True)), *answers)


def label(name, **others):
    return dict(others, __name__=name)


def series(now_ms):
    """Floats of even and uneven distance, one sample alone, histograms, many series."""
    def steps(count, gap_ms=STEP_MS):
        return [now_ms - gap_ms * (count - 1 - i) for i in range(count)]
    all_series = []
    for i in range(7):
        all_series.append((label("req_total", job="api", i=str(i)), [(t, float(t % 997)) for t in steps(SAMPLES)]))
    for i in range(3):
        all_series.append((label("slow", i=str(i)), [(t, 1.0) for t in steps(9, 61_500)]))
    all_series.append((label("single"), [(now_ms - 20_000, 5.0)]))
    all_series.append((label("gap"), [(t, 2.0) for t in steps(20) if not now_ms - 200_000 < t < now_ms - 90_000]))
    for i in range(80):
        all_series.append((label("many", i="%03d" % i), [(t, float(i)) for t in steps(12)]))
    for i in range(4):
        h = FH(schema=0, sum=10.0 + i, count=6.0, zc=1.0, zt=0.001, pos={0: 2.0, 1: 1.0, 5: 2.0})
        all_series.append((label("nh", i=str(i)), [(t, h) for t in steps(SAMPLES)]))
    return all_series


COST_QUERIES = [
    "up", "req_total", "single", "gap", "many", "nh", "slow", "absent(nope)", "1", "vector(1)", "time()",
    "sum(req_total)", "req_total + on(i) slow", "req_total or req_total", "sum(rate(req_total[5m]))",
    "rate(req_total[1m])", "rate(slow[5m])", "sum_over_time(single[5m])", "rate(gap[5m])", "rate(many[2m])",
    "sum(rate(nh[5m]))", "histogram_count(rate(nh[5m]))", "histogram_quantile(0.9, rate(nh[5m]))",
    "req_total offset 1m", "rate(req_total[1m] offset 2m)", "req_total @ %(now)d", "rate(req_total[2m] @ %(now)d)",
    "rate(req_total[2m] @ end())", "max_over_time(req_total[5m:30s])", "max_over_time(rate(req_total[1m])[3m:15s])",
    "max_over_time(sum(rate(req_total[1m]))[5m:])", "avg_over_time(req_total[3m:20s] offset 1m)",
    "req_total{i=~\"[0-3]\"} / ignoring(x) req_total", "count_over_time({job=\"api\"}[4m])",
    "topk(2, rate(req_total[5m] anchored))", "rate(req_total[2m] smoothed)", "sort(many > 3)",
    "quantile_over_time(0.5, many[90s])", "timestamp(req_total)", "label_replace(slow, \"a\", \"$1\", \"i\", \"(.*)\")",
    # Refused, or not a vector.
    "req_total[5m]", "\"text\"", "req_total[5m:1m]", "(", "", "nope(", "sum_over_time(req_total[step()])",
    "max_over_time(req_total[5m:step()])", "rate(req_total[range()])",
]


def cost(report, pair, plain, now):
    for query in COST_QUERIES:
        # A selector at half a step, so that no sample lies on the border of a window.
        text = query.replace("%(now)d", str(now))
        instant = [("query", text), ("time", str(now + 5))]
        compare(report, pair, "/api/v1/query_cost", instant, ("GET", "POST"))
        for step in ("15", "1m", "7s"):
            times = [("query", text), ("start", str(now - 295)), ("end", str(now + 5)), ("step", step)]
            compare(report, pair, "/api/v1/query_range_cost", times)
    good = [("query", "req_total"), ("time", str(now))]
    good_range = [("query", "req_total"), ("start", str(now - 60)), ("end", str(now)), ("step", "15")]
    for name, values in {
        "limit": ["x", "-1", "3", ""], "cost": ["maybe", "true", "0", "T", "TrUe"], "time": ["x", "2015-13-01"],
        "timeout": ["x", "0", "-1s", "5s"], "lookback_delta": ["x", "1m", "-5"], "stats": ["some", "all", "true"],
        "max_series": ["x", "-1", "+1", "1", "18446744073709551616"], "max_samples_read": ["1.5", "2"],
        "max_query_duration": ["x", "-5s", "1s", "5h", "0", "2m", "121"],
        "start": ["", "x"], "end": ["", "1"], "step": ["", "0", "-1", "x", "0.001"],
    }.items():
        for value in values:
            for path, base in (("query_cost", good), ("query_range_cost", good_range)):
                params = [pair for pair in base if pair[0] != name] + [(name, value)]
                compare(report, pair, "/api/v1/" + path, params, ("GET", "POST"))
    for value in ("1", "no", "false"):
        headers = {"X-Prometheus-Use-Start-Timestamps": value}
        compare(report, pair, "/api/v1/query_cost", good, headers=headers)
    for path in ("query_cost", "query_range_cost"):
        compare(report, plain, "/api/v1/" + path, good, ("GET", "POST"), name="feature off: ")
        compare(report, pair, "/api/v1/" + path, good, ("PUT", "DELETE"))


LABELS = [
    "", "{}", "null", '{"a":"b"}', '{"a":1}', '{"a":[1]}', "[]", "1", '"x"', "true", '{"a":null}', '{"a"}', "{a}", "x",
    "{}x", '{"a":"b",}', "tru ", "trux", "-", "01", "1.", "1e", '"\\x"', '"\\u12g"', '"\x01"', "[1 2]", '{"a":"b" 1}',
    "é", "'", "\\", '"é', '{"__address__":"x:9","job":"y"}', "[" * 10001, "[" * 10000,
]


def targets(report, pair):
    both = ("GET", "POST")
    for pool in ([], [""], ["x"], ["a\"b"], ["é\x01"], ["x", "y"], ["<a>&"], ["\n"]):
        params = [("scrapePool", one) for one in pool]
        compare(report, pair, "/api/v1/scrape_pools/config", params, both)
        compare(report, pair, "/api/v1/targets/relabel_steps", params, both)
    for text in LABELS:
        compare(report, pair, "/api/v1/targets/relabel_steps", [("scrapePool", "x"), ("labels", text)])
    compare(report, pair, "/api/v1/scrape_pools")
    compare(report, pair, "/api/v1/targets")


def keys_of(value):
    """Field names of messages and the types of their values."""
    if isinstance(value, dict):
        return {name: keys_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return keys_of(value[0]) if value else None
    return type(value).__name__.replace("int", "float")


def self_metrics(report, pair):
    path = "/api/v1/status/self_metrics"
    for pattern in ("(", "[", "a{2,1}", "nope", "*", "\\", "a(?P<n", "(?i)NOPE", ")", "x**"):
        compare(report, pair, path, [("metric_name_pattern", pattern)])
    # The metrics are others, so one of each type is compared by its fields.
    for ours, theirs in (
        ("process_open_fds", "process_open_fds"),
        ("process_cpu_seconds_total", "process_cpu_seconds_total"),
        ("chronolith_http_response_bytes_total", "prometheus_http_requests_total"),
        ("chronolith_http_request_duration_seconds", "prometheus_http_request_duration_seconds"),
    ):
        seen = []
        for client, name in ((pair.ours, ours), (pair.theirs, theirs)):
            status, kind, body = shown(ask(client, "GET", path, [("metric_name_pattern", name)]))
            families = body.get("data", [])
            for family in families:
                family.pop("unit", None)
                for metric in family["metric"]:
                    for value in metric.values():
                        # Creation times and native buckets are not kept here.
                        for field in ("createdTimestamp", "schema", "zeroThreshold", "zeroCount", "positiveSpan",
                                      "positiveDelta") if isinstance(value, dict) else ():
                            value.pop(field, None)
            seen.append((status, kind, len(families), [family["type"] for family in families], keys_of(families)))
        report.add("%s %s" % (path, ours), *seen)


def openapi(report, pair):
    """Versions and headers; the routes are others."""
    for version in ("", "3.1", "3.1.0", "3.2", "3.2.0", "9", "3.2.1"):
        seen = []
        for client in (pair.ours, pair.theirs):
            params = [("openapi_version", version)] if version else []
            status, headers, body = ask(client, "GET", "/api/v1/openapi.yaml", params)
            seen.append((status, headers.get("Content-Type"), headers.get("Cache-Control"), body.split(b"\n")[0]))
        report.add("openapi.yaml version %r" % version, *seen)
    compare(report, pair, "/api/v1/openapi.yaml", methods=("POST", "DELETE"))


SEARCH_TERMS = [["pump"], ["starts"], ["total"], ["strt"], ["ps"], ["req", "pump"], ["é"], ["PUMP"], ["pump_starts_total"], [""],
                ["", "starts"], ["a"], ["t"], ["mp_st"], ["_"], ["café"], ["martha"], ["zzz"], ["pumps_startz"]]


def search(report, pair):
    for terms in SEARCH_TERMS:
        for extra in ([], [("fuzz_alg", "jarowinkler")], [("fuzz_alg", "jarowinkler"), ("fuzz_threshold", "70")],
                      [("fuzz_threshold", "60")], [("fuzz_threshold", "100")], [("case_sensitive", "false")],
                      [("fuzz_alg", "jarowinkler"), ("fuzz_threshold", "40"), ("case_sensitive", "false")],
                      [("sort_by", "score")]):
            params = [("search[]", term) for term in terms] + extra + [("include_score", "true"), ("limit", "200")]
            compare(report, pair, "/api/v1/search/metric_names", params)


# Names of which a search has different scores.
NAMES = ["pump_starts_total", "pump_stops_total", "starts_total", "a_pump", "req_pump_total", "café_pump", "marhta", "PumpStarts",
         "p_s", "xpumpx", "tt", "pump"]


def times(report, pair):
    """Halves of a millisecond and others: the timestamp of a value that exists at any time."""
    for whole in (0, 1, 1651562891, 1700000000, -3, 253402300):
        for fraction in (".0005", ".5825", ".58250", ".5815", ".5835", ".9995", ".99949", ".0015", ".1234567", ".2225", ".999"):
            compare(report, pair, "/api/v1/query", [("query", "time()"), ("time", "%d%s" % (whole, fraction))])
    # Not among them: `nan` and `inf`, which Prometheus reads as a time of 1677, and `1_000`, which is refused here.
    for text in ("1e9", "1.5e9", "1e-9", "2015-07-01T20:10:51.7815Z", "0x10", "+5", "-0.0005", " 5", "1e", "5s"):
        compare(report, pair, "/api/v1/query", [("query", "time()+1"), ("time", text)])


def remote_read(report, pair, now_ms):
    """Labels without samples for the function `series`, in one message; the same chunks in frames."""
    for function in (None, "series", "", "rate"):
        for stream in (False, True):
            for start, end in ((now_ms - 90_000, now_ms), (now_ms - 10_000_000, now_ms), (now_ms - 10_000_000, now_ms - 9_000_000)):
                matcher = f_bytes(3, f_varint(1, 2) + f_bytes(2, "__name__") + f_bytes(3, "single|slow|gap"))
                query = f_varint(1, start) + f_varint(2, end) + matcher
                if function is not None:
                    query += f_bytes(4, f_bytes(2, function) + f_varint(3, start) + f_varint(4, end))
                message = f_bytes(1, query) + (f_bytes(2, varint(1)) if stream else b"")
                headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
                seen = []
                for client in (pair.ours, pair.theirs):
                    status, got, body = client.request("POST", "/api/v1/read", snappy(message), headers)
                    body = unsnappy(body) if got.get("Content-Encoding") == "snappy" else body
                    # Chunks may have another encoding, and series of a message come in any order from Prometheus.
                    seen.append((status, got.get("Content-Type"), labels_in(body) if stream else series_in(body)))
                report.add("read func=%r stream=%r %d s" % (function, stream, (end - start) // 1000), *seen)


def labels_in(frames):
    return [name for name in (b"single", b"slow", b"gap") for _ in range(frames.count(name))]


def series_in(message):
    """The series of a message of samples, one query."""
    def length(at):
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value, at
    found = []
    end, at = length(1)
    assert message[0] == 10 and end + at == len(message), "one result"
    while at < len(message):
        assert message[at] == 10, "a series"
        size, at = length(at + 1)
        found.append(message[at:at + size])
        at += size
    return sorted(found)


def mimir_prefix(report, pair):
    """Prometheus has no prefix here: below it, this server answers as Prometheus does without."""
    for path, params in (("query", [("query", "1+1"), ("time", "5")]), ("labels", []), ("label/i/values", []), ("series", [("match[]", "single")]),
                         ("rules", []), ("alerts", []), ("metadata", []), ("query", [("query", "(")]), ("format_query", [("query", "1+x")]),
                         ("query_exemplars", [("query", "x"), ("start", "1"), ("end", "2")]), ("targets", []), ("nothing", [])):
        ours = shown(ask(pair.ours, "GET", "/prometheus/api/v1/" + path, params))
        theirs = shown(ask(pair.theirs, "GET", "/api/v1/" + path, params))
        report.add("below /prometheus: %s %s" % (path, params), ours, theirs)


def scrapers(report, pair, args, folder, now_ms):
    """A real Prometheus with legacy names federates both."""
    pair.write([({"__name__": "vat.temp", "my.id": "7"}, [(now_ms, 2.0)]), ({"__name__": "vat_level"}, [(now_ms, 3.0)]),
                ({"__name__": "vat_ok"}, [(now_ms, 1.0)])])
    jobs = []
    config = os.path.join(folder, "scraper.yml")
    with open(config, "w") as out:
        out.write("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n")
        for scheme in ("", "underscores", "dots", "values"):
            for name, client in (("ours", pair.ours), ("theirs", pair.theirs)):
                job = "%s-%s" % (name, scheme or "default")
                jobs.append(job)
                out.write("- {job_name: %s, honor_labels: true, metrics_path: /federate, metric_name_validation_scheme: legacy, %s"
                          "params: {'match[]': ['{__name__=~\"vat.*\"}']}, static_configs: [{targets: ['127.0.0.1:%d']}]}\n"
                          % (job, "metric_name_escaping_scheme: %s, " % scheme if scheme else "", client.port))
    port = free_port(pair.theirs.port + 100)
    pair.start(folder, "scraper", [args.prometheus, "--config.file=" + config, "--storage.tsdb.path=" + os.path.join(folder, "scraper"),
                                   "--web.listen-address=127.0.0.1:%d" % port])
    scraper = Client("http://127.0.0.1:%d" % port)
    assert scraper.wait_ready(), "the scraper does not start: see %s" % folder
    found = {}
    for job in jobs:
        end = time.time() + 60
        while time.time() < end:
            status, answer = scraper.api("/api/v1/query", {"query": "up{job=\"%s\"}" % job})
            if status == 200 and answer["data"]["result"]:
                break
            time.sleep(0.2)
        up = [one["value"][1] for one in answer["data"]["result"]]
        # `honor_labels` keeps an empty instance, so the job alone tells the targets apart.
        _, answer = scraper.api("/api/v1/query", {"query": "{__name__=~\".*vat.*\",job=\"%s\"}" % job})
        rows = sorted(json.dumps({k: v for k, v in one["metric"].items() if k not in ("job", "instance")}, sort_keys=True) + one["value"][1]
                      for one in answer["data"]["result"])
        found[job] = (up, rows)
    for job in jobs:
        if job.startswith("ours"):
            report.add("legacy scraper %s: up and three series" % job, (found[job][0], len(found[job][1])), (["1"], 3))
            report.add("legacy scraper %s: names as from Prometheus" % job, found[job], found[job.replace("ours", "theirs")])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="binary of this server")
    parser.add_argument("--prometheus", required=True, help="binary of Prometheus 3.16")
    parser.add_argument("--verbose", action="store_true", help="print equal answers too")
    args = parser.parse_args()
    report = Report(args.verbose)
    with tempfile.TemporaryDirectory() as plain_dir, tempfile.TemporaryDirectory() as dir:
        pairs = []
        try:
            plain = Pair(args, plain_dir, "search-api")
            pairs.append(plain)
            pair = Pair(args, dir, "query-cost,promql-experimental-functions")
            pairs.append(pair)
            now = int(time.time()) // 15 * 15 - 15
            pair.write(series(now * 1000))
            targets(report, plain)
            self_metrics(report, plain)
            cost(report, pair, plain, now)
            openapi(report, plain)
            times(report, plain)
            mimir_prefix(report, pair)
            remote_read(report, pair, now * 1000)
            plain.write([({"__name__": name}, [(now * 1000, 1.0)]) for name in NAMES])
            search(report, plain)
            scrapers(report, plain, args, plain_dir, now * 1000)
        finally:
            for one in pairs:
                one.stop()
    print("%d passed, %d failed" % (report.passed, report.failed))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
