#!/usr/bin/env python3
"""Compare what the generator of `make demo` reports with what a server has."""
import argparse
import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "wire"))
import tsdbwire as wire

END = "2026-11-20T12:00:00Z"
SMALL = ["--services", "5", "--hours", "1"]
ALL = '{__name__=~".+"}'
RUN_SECONDS = 120


def seconds(text):
    return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


class World:
    """A server that has the small world, and what the generator reported."""

    def __init__(self, args):
        self.url, self.demo, self.server = args.url, args.demo, args.server
        self.facts = self.call("send", "--url", self.url, "--end", END, *SMALL, "--json")
        self.end = seconds(self.facts["end"])

    def call(self, *words):
        done = subprocess.run([self.demo, *words], stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
        assert done.returncode == 0, "%s ended with %d" % (words, done.returncode)
        return json.loads(done.stdout)

    def client(self, tenant):
        return wire.Client(self.url, {"X-Scope-OrgID": tenant})

    def get(self, tenant, path, **params):
        status, answer = self.client(tenant).api(path, params, post=False)
        assert status == 200, (path, params, status, answer)
        return answer

    def number(self, tenant, query, at=None):
        result = self.get(tenant, "/api/v1/query", query=query, time=at or self.end, nocache=1)["data"]["result"]
        assert len(result) == 1, (query, result)
        return float(result[0]["value"][1])

    def metric(self, name):
        """Values of a metric of the server by label set."""
        _, _, body = wire.Client(self.url).request("GET", "/metrics")
        return {labels: float(value) for labels, value in re.findall(r"^%s(\{[^}]*\})? (\S+)$" % name, body.decode(), re.M)}


def equal_bytes(world):
    first = world.call("digest", "--end", END, *SMALL)
    again = world.call("digest", "--end", END, *SMALL)
    assert first == again, (first, again)
    other = world.call("digest", "--end", END, "--seed", "2", *SMALL)
    assert other["hash"] != first["hash"], other
    sent = {name: value for name, value in first.items() if name != "hash"}
    assert sent == world.facts, (sent, world.facts)


def counts(world):
    for tenant, want in world.facts["tenants"].items():
        times = {"start": world.end - 7200, "end": world.end + 1}
        names = world.get(tenant, "/api/v1/label/__name__/values", **times)["data"]
        # Functions drop the name, so each metric is counted by itself.
        found = sum(world.number(tenant, 'sum(count_over_time({__name__="%s"}[2h]))' % name) for name in names)
        assert found == want["samples"], (tenant, "samples", found, want)
        series = world.get(tenant, "/api/v1/series", **{"match[]": ALL}, **times)["data"]
        assert len(series) == want["series"], (tenant, "series", len(series), want)
        answer = world.get(tenant, "/api/v1/query_exemplars", query=ALL, **times)
        exemplars = [one for series in answer["data"] for one in series["exemplars"]]
        assert len(exemplars) == want["exemplars"], (tenant, "exemplars", len(exemplars), want)
        assert all(re.fullmatch("[0-9a-f]{32}", one["labels"]["trace_id"]) for one in exemplars), exemplars[:3]


def metadata(world):
    for tenant in world.facts["tenants"]:
        found = world.get(tenant, "/api/v1/metadata")["data"]
        kinds = {name: (entries[0]["type"], entries[0]["unit"]) for name, entries in found.items()}
        assert kinds["http_request_duration_seconds"] == ("histogram", "seconds"), kinds
        assert kinds["http_requests_total"] == ("counter", ""), kinds
        assert kinds["process_resident_memory_bytes"] == ("gauge", "bytes"), kinds
        assert all(entries[0]["help"] for entries in found.values()), found


def refusals(world):
    name = "chronolith_tenant_samples_rejected_total"
    for tenant in world.facts["tenants"]:
        found = {}
        for labels, value in world.metric(name).items():
            if 'tenant="%s"' % tenant in labels and value:
                found[re.search('reason="([^"]*)"', labels).group(1)] = value
        for reason in ("out_of_bounds", "duplicate_timestamp", "no_metric_name", "duplicate_label", "reserved_label", "label_name_too_long"):
            assert found.get(reason), (tenant, reason, found)
    refused = json.dumps(world.get("shop", "/api/v1/graphite/refused"))
    assert "charging" in refused, refused


def three_languages(world):
    start = world.end - 3600
    answer = world.get("shop", "/query", db="warehouse", q="SELECT count(speed), count(parcels) FROM conveyor WHERE time > %ds" % start)
    assert answer["results"][0]["series"][0]["values"][0][1:] == [240, 240], answer
    status, answer = world.client("shop").api("/render", {"target": "warehouse.*.*.battery", "from": start, "until": world.end, "format": "json"})
    assert status == 200 and len(answer) == 9, (status, answer)
    assert all(sum(value is not None for value, _ in one["datapoints"]) >= 59 for one in answer), answer[0]


def out_of_order(world):
    outage = world.facts["outage"]
    start, end = seconds(outage["start"]), seconds(outage["end"])
    found = world.number("shop", 'sum(count_over_time(cold_room_temperature_celsius[%ds]))' % (end - start), end)
    # The range excludes its start and includes its end; both are times of a sample.
    assert found == 2 * (end - start) / 60, found
    assert any(world.metric("chronolith_head_samples_out_of_order_total").values()), "no sample counts as out-of-order"


def incident(world):
    incident = world.facts["incident"]
    middle = (seconds(incident["start"]) + seconds(incident["end"])) // 2
    before = seconds(incident["start"]) - 300
    for service, least in (("inventory", 0.1), ("checkout", 0.05), ("catalog", 0)):
        share = 'sum(rate(http_requests_total{service="%s",code="500"}[1m])) / sum(rate(http_requests_total{service="%s"}[1m]))' % (service, service)
        quantile = 'histogram_quantile(0.5, sum(rate(http_request_duration_seconds{service="%s"}[1m])))' % service
        assert world.number("shop", share, before) < 0.03, service
        found, slower = world.number("shop", share, middle), world.number("shop", quantile, middle) / world.number("shop", quantile, before)
        assert found >= least and (slower > 2) == (least > 0), (service, found, slower)
    assert world.number("shop", 'max(queue_length{service="inventory"})', middle) > 100


def panel_result(address, tenant, language, fields, start, end):
    """What a panel of a link shows: its series, or rows."""
    live = wire.Client(address, {"X-Scope-OrgID": tenant})
    expression = fields["expr"]
    if language == "influxql":
        times = "time >= %ds AND time < %ds" % (start, end)
        text = expression.replace("$timeFilter", times).replace("$__interval", "1m")
        status, answer = live.api("/query", {"db": fields["db"], "q": text})
        return status == 200 and answer["results"][0].get("series")
    if language == "graphite":
        status, answer = live.api("/render", {"target": expression, "from": start, "until": end, "format": "json"})
        return status == 200 and [one for one in answer if any(value is not None for value, _ in one["datapoints"])]
    status, answer = live.api("/api/v1/query_range", {"query": expression, "start": start, "end": end, "step": 60})
    return status == 200 and answer["data"]["result"]


def check_links(text):
    """Every address of the start opens the page, and each of its panels shows something."""
    languages = set()
    for address in re.findall(r"http://\S+/\?\S+", text):
        parts = urllib.parse.urlsplit(address)
        fields = dict(urllib.parse.parse_qsl(parts.query))
        host = "%s://%s" % (parts.scheme, parts.netloc)
        status, headers, _ = wire.Client(host).request("GET", "/?" + parts.query)
        assert status == 200, (address, status, headers)
        panels = sorted({name.split(".")[0] for name in fields if re.match(r"g\d+\.", name)})
        for panel in panels:
            of_panel = {name.split(".", 1)[1]: value for name, value in fields.items() if name.startswith(panel + ".")}
            end = seconds(of_panel["end_input"].replace(" ", "T") + "Z")
            start = end - 60 * int(of_panel["range_input"].rstrip("m"))
            language = of_panel.get("lang", "promql")
            languages.add(language)
            assert panel_result(host, fields["tenant"], language, of_panel, start, end), (address, of_panel)
    assert languages == {"promql", "influxql", "graphite"}, languages


def run(world):
    """`run` on a port that is taken, then on a free one until it is interrupted."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        start = [world.demo, "run", "--server", world.server, *SMALL, "--http"]
        env = {**os.environ, "TMPDIR": folder}
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = subprocess.run([*start, address], capture_output=True, text=True, env=env, timeout=RUN_SECONDS)
        assert done.returncode == 1 and address in done.stderr and "stop the program" in done.stderr, done
        assert os.listdir(folder) == [], os.listdir(folder)
        port = wire.free_port(11900)
        process = subprocess.Popen([*start, "127.0.0.1:%d" % port], stdout=subprocess.PIPE, text=True, env=env)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        text = "".join(lines)
        assert "tenant=shop" in text and "tenant=billing" in text, text
        check_links(text)
        live = wire.Client("http://127.0.0.1:%d" % port, {"X-Scope-OrgID": "billing"})
        last = 0
        for _ in range(200):
            # Live samples are newer than the end of the history, which is a whole minute.
            result = live.api("/api/v1/query", {"query": "max(timestamp(up))"})[1]["data"]["result"]
            last = float(result[0]["value"][1]) if result else 0
            if last % 60:
                break
            time.sleep(0.1)
        assert last % 60, "no live sample came"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0, process.returncode
        assert os.listdir(folder) == [], os.listdir(folder)
        assert wire.free_port(port) == port, "the server did not end"


STEPS = [equal_bytes, counts, metadata, refusals, three_languages, out_of_order, incident, run]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--demo", required=True)
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    world = World(args)
    passed = failed = 0
    for step in STEPS:
        start, fault = time.time(), ""
        try:
            step(world)
            passed += 1
        except Exception as error:  # a step that fails does not stop the others
            failed += 1
            where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
            fault = ": line %d: %s %s" % (where.lineno, type(error).__name__, str(error)[:1500])
        print("%-4s %s (%.1f s)%s" % ("FAIL" if fault else "ok", step.__name__, time.time() - start, fault), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
