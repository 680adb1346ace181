"""Requests in Graphite's protocols: carbon lines, render, find, tags, events, functions, deletion."""
import gzip
import time

from exchange import DAY, Case, Packet, form, get, post, post_json
from varying import field, numbers

SPAN = {"from": DAY - 60, "until": DAY + 600}


def points():
    lines = []
    for n in range(11):
        for server in ("web1", "web2", "db1"):
            if server == "web2" and n in (3, 4):
                continue
            lines.append("servers.%s.cpu %s %d" % (server, n * 1.5 + len(server), DAY + 60 * n))
        lines.append("servers.web1.mem %d %d" % (1000 - n, DAY + 60 * n))
        lines.append("disk.used;host=web1;datacenter=x %d %d" % (n, DAY + 60 * n))
        lines.append("disk.used;host=web2;datacenter=y %d %d" % (n * 2, DAY + 60 * n))
        lines.append("requests.count %d %d" % (n * 10, DAY + 60 * n))
    return ("\n".join(lines) + "\n").encode()


BAD_LINES = ["a", "a b", "a b c", "a 1 x", " a 1 1", "a..b 1 1700006400", "a 1 -5", "a nan 1700006400", "a inf 1700006400",
             "a;b 1 1700006400", "a;b= 1 1700006400", "a;=c 1 1700006400", "a;name=x 1 1700006400", ".a 1 1700006400",
             "a 1 99999999999999", "a 1 1700006400 x", "a{b} 1 1700006400", "é 1 1700006400", "x" * 5000 + " 1 1700006400",
             "a 1e999 1700006400", "a 0x1 1700006400", "a\t1\t1700006400", "a;b=1;b=2 1 1700006400", "a;~b=1 1 1700006400"]


def carbon_cases():
    path = "/api/v1/carbon"
    yield post(path, points())
    for line in BAD_LINES:
        yield post(path, line + "\n")
    yield post(path, "ok.http 1 %d\nbad\nok.http 2 %d\n" % (DAY, DAY + 60))
    yield post(path, "ok.last 1 %d" % DAY)
    packed = gzip.compress(b"ok.gzip 1 %d\n" % DAY, mtime=0)
    for body in (packed, packed[:-9], packed[:4], b"x", b""):
        yield post(path, body, headers={"Content-Encoding": "gzip"})
    yield post(path, b"", headers={"Content-Encoding": "zstd"})
    yield post(path, b"\xff\xfe 1 1700006400\n")
    for method in ("GET", "HEAD", "PUT", "OPTIONS"):
        yield Case(method, path)
    yield Packet("tcp", "carbon", ("tcp.a 1 %d\nbad\n%s\ntcp.b 2 %d\n" % (DAY, "\n".join(BAD_LINES), DAY)).encode("utf-8"))
    yield get("/metrics/find", {"query": "tcp.*"}, until="tcp.b")
    yield Packet("udp", "carbon", b"udp.a 1 %d\nbad\nudp.b 2 %d\n" % (DAY, DAY))
    yield get("/metrics/find", {"query": "udp.*"}, until="udp.b")
    yield Packet("tcp", "carbon-pickle", b"\x00\x00\x00\x03abc")
    yield get("/api/v1/graphite/refused", {"reason": "bad_pickle"}, until="pickle:")
    for reason in (None, "bad_value", "no_value", "bad_path", "bad_time", "nan", "too_long", "x", ""):
        rules = [field("count"), field("time_ms"), field("sender"), field("client")]
        yield get("/api/v1/graphite/refused", {"reason": reason} if reason is not None else None, rules=rules)
    points_2 = [{"metric": "two.a", "points": [[DAY, 1]]}]
    for body in (points_2, {}, "x", [], [{"metric": "two.b"}], [{"name": "two.c", "value": 1, "time": DAY, "interval": 60}]):
        yield post_json("/metrics", body)


TARGETS = [
    "servers.web1.cpu", "servers.*.cpu", "servers.web{1,2}.cpu", "none.*", "sumSeries(servers.*.cpu)", "alias(servers.web1.cpu, 'x')",
    "averageSeries(servers.*.cpu)", "aliasByNode(servers.*.cpu, 1)", "movingAverage(servers.web1.cpu, 2)", "scale(servers.web1.mem, 0.5)",
    "summarize(servers.web1.cpu, '5min', 'sum')", "groupByNode(servers.*.*, 1, 'sum')", "seriesByTag('name=disk.used')",
    "groupByTags(seriesByTag('name=disk.used'), 'sum', 'host')", "derivative(requests.count)", "perSecond(requests.count)",
    "asPercent(servers.*.cpu)", "divideSeries(servers.web1.cpu, servers.web1.mem)", "highestMax(servers.*.cpu, 1)", "sortByName(servers.*.cpu)",
    "holtWintersForecast(servers.web1.cpu)", "timeShift(servers.web1.cpu, '1min')", "constantLine(5)", "threshold(5, 'x', 'red')",
    "keepLastValue(servers.web2.cpu)", "transformNull(servers.web2.cpu, 0)", "removeAboveValue(servers.web1.cpu, 5)", "nPercentile(servers.web1.cpu, 90)",
    "exclude(servers.*.cpu, 'web')", "limit(servers.*.cpu, 1)", "template(servers.$h.cpu, h='web1')", "smartSummarize(servers.web1.cpu, '2min')",
    "events('*')", "randomWalk('x')", "integral(requests.count)", "stdev(servers.web1.cpu, 2)", "linearRegression(servers.web1.cpu)",
    "aggregate(servers.*.cpu, 'median')", "cactiStyle(servers.*.cpu)", "legendValue(servers.web1.cpu, 'avg')", "log(requests.count)",
]
BAD_TARGETS = [
    "", "(", "servers.web1.cpu)", "sumSeries(", "nofunc(servers.*.cpu)", "alias(servers.web1.cpu)", "scale(servers.web1.cpu, 'x')",
    "movingAverage(servers.web1.cpu, 'x')", "summarize(servers.web1.cpu, 'x')", "a b", "servers.[", "servers.{", "limit(servers.*.cpu)",
    "seriesByTag()", "seriesByTag('x')", "seriesByTag('name=~(')", "aggregate(servers.*.cpu, 'x')", "timeShift(servers.web1.cpu, 'x')",
    "exclude(servers.*.cpu, '(')", "sumSeries('x')", "scale(servers.web1.cpu, 1, 2)", "aliasByNode(servers.*.cpu, 9)", "groupByNode(servers.*.cpu)",
    "template(servers.$x.cpu)", "summarize(servers.web1.cpu, '1min', 'x')", "scale(servers.web1.cpu, factor=)", "aliasSub(servers.web1.cpu, '(', 'x')",
    "sumSeries(1)", "asPercent(servers.*.cpu, 'x')", "timeShift(servers.web1.cpu)", "'x", "smartSummarize(servers.web1.cpu, '1min', 'sum', 'x')",
]


def render_cases():
    for target in TARGETS:
        if not target.startswith("randomWalk"):
            yield get("/render", dict(SPAN, target=target, format="json"))
    for target in BAD_TARGETS:
        yield form("/render", dict(SPAN, target=target, format="json"))
    good = dict(SPAN, target="servers.*.cpu")
    for name in ("json", "csv", "raw", "pickle", "msgpack", "dygraph", "rickshaw", "svg", "png", "pdf", "x", ""):
        yield get("/render", dict(good, format=name))
        yield get("/render", dict(good, target="none", format=name))
    for changed in ({"rawData": "1"}, {"jsonp": "f"}, {"jsonp": "f("}, {"maxDataPoints": 3}, {"maxDataPoints": "x"}, {"maxDataPoints": 0},
                    {"noNullPoints": "1"}, {"xFilesFactor": "0.5"}, {"xFilesFactor": "x"}, {"tz": "Europe/Berlin"}, {"tz": "x"},
                    {"from": "x"}, {"until": "x"}, {"from": DAY + 900}, {"from": "00:00_20231115", "until": "00:05_20231115"},
                    {"from": "-10min", "now": DAY + 600, "until": "now"}, {"now": "x"}, {"meta": "1"}, {"target": []},
                    {"target": ["servers.web1.cpu", "servers.web1.mem"]}, {"from": "20231115", "until": "20231116"}):
        yield get("/render", dict(good, **dict({"format": "json"}, **changed)))
        yield get("/showplan", dict(good, **dict({"format": "json"}, **changed)))
    for size in ({"width": "x"}, {"width": 5}, {"width": 100000}, {"height": -1}, {"bgcolor": "x"}, {"lineWidth": "x"}, {"title": "A title"}):
        yield get("/render", dict(good, **dict({"format": "svg"}, **size)))
        yield get("/render", dict(good, **dict({"format": "png"}, **size)))
    yield get("/render/", dict(good, format="json"))
    yield form("/render/", dict(good, format="json"))
    yield get("/render")
    yield post("/render", b"target=\xff", headers={"Content-Type": "application/x-www-form-urlencoded"})
    yield form("/showplan", {"target": "("})
    for method in ("PUT", "HEAD", "OPTIONS"):
        yield Case(method, "/render", dict(good, format="json"))


def find_cases():
    for query in ("*", "servers.*", "servers.web1.*", "servers.{web1,db1}.cpu", "none", "servers.web[12]", "[", "{", "", "**", "disk.*", "*.*"):
        for name in ("treejson", "completer", "json", "nodelist"):
            yield get("/metrics/find", {"query": query, "format": name})
        yield get("/metrics/expand", {"query": query})
    for name in ("pickle", "msgpack", "x"):
        yield get("/metrics/find", dict(SPAN, query="servers.*", format=name))
    for changed in ({"wildcards": 1}, {"leavesOnly": 1}, {"leavesOnly": "x"}, {"position": 0, "format": "nodelist"}, {"from": DAY, "until": DAY + 60},
                    {"from": "x"}, {"until": "x"}, {"from": -1}, {"jsonp": "f"}, {"from": DAY + 86400, "until": DAY + 90000}):
        yield get("/metrics/find", dict({"query": "servers.*"}, **changed))
        yield get("/metrics/expand", dict({"query": ["servers.*", "none.*"], "groupByExpr": 1}, **changed))
    yield form("/metrics/find/", {"query": "servers.*"})
    yield get("/metrics/find/", {"query": "servers.*"})
    for path in ("/metrics/find", "/metrics/expand", "/metrics/index.json"):
        yield form(path, {"query": "servers.*"})
    yield get("/metrics/find")
    yield get("/metrics/expand")
    yield get("/metrics/expand", {"query": "x", "groupByExpr": "x"})
    yield get("/metrics/index.json")
    yield get("/metrics/index.json", {"jsonp": "f"})
    for path in ("/metrics/get-metadata", "/metrics/set-metadata"):
        for params in ({}, {"metric": "servers.web1.cpu", "key": "aggregationMethod"}, {"metric": "requests.count", "key": "x"},
                       {"metric": ["requests.count", "none"], "key": "aggregationMethod", "value": "sum"}):
            yield get(path, params)
            yield form(path, params)
    for path in ("servers.web1.cpu", "requests.count", "a;b=c", "", "..", "old name", "x.count"):
        yield get("/api/v1/graphite/explain", {"path": path})
    yield get("/api/v1/graphite/explain")
    for params in ({}, {"limit": 2}, {"limit": 2, "after": "requests.count"}, {"limit": "x"}, {"limit": 0}, {"limit": 10001}, {"after": "zzz"}):
        yield get("/api/v1/graphite/series", params)


def tag_cases():
    one = ["name=disk.used"]
    for params in ({}, {"pretty": 1}, {"filter": "h.*"}, {"filter": "("}, {"limit": 1}, {"limit": "x"}):
        yield get("/tags", params)
        yield get("/tags/host", params)
    yield get("/tags/")
    yield get("/tags/none")
    yield get("/tags/%ff")
    for expressions in ([], one, ["host=web1"], ["host!=web1", "name=disk.used"], ["host=~web.*"], ["x"], ["name=~("], ["host!=~web1"], ["=x"], [""]):
        for path in ("/tags/findSeries", "/tags/autoComplete/tags", "/tags/autoComplete/values", "/tags/terms"):
            params = dict(expr=expressions, tag="host", tags=["host"]) if path != "/tags/findSeries" else dict(expr=expressions)
            yield get(path, params)
    for changed in ({"limit": 1}, {"limit": "x"}, {"pretty": 1}, {"from": "x"}, {"tagPrefix": "h"}, {"valuePrefix": "web2"}, {"format": "x"}, {"to": "x"}, {"until": "x"}):
        for path in ("/tags/findSeries", "/tags/autoComplete/tags", "/tags/autoComplete/values", "/tags/terms"):
            yield form(path, dict({"expr": one, "tag": "host", "tags": "host"}, **changed))
    yield get("/tags/autoComplete/values", {"expr": one})
    yield get("/tags/terms", {"expr": one})
    for path in ("a.b;x=y;c=d", "a;", "a;b", ";a=b", "", "a;name=x"):
        yield form("/tags/tagSeries", {"path": path})
        yield form("/tags/tagMultiSeries", {"path": [path, "ok;a=b"]})
    yield post("/tags/tagSeries")
    yield post("/tags/tagMultiSeries")
    yield get("/tags/tagSeries")


def meta_tag_cases():
    rule = {"expressions": ["host=web1"], "metaTags": ["zone=a"]}
    for path in ("/metaTags/upsert", "/metaTags/swap"):
        wrap = (lambda value: {"records": value}) if path.endswith("swap") else (lambda value: value[0] if value else {})
        for value in ([rule], [], [{"expressions": [], "metaTags": ["a=b"]}], [{"expressions": ["x"], "metaTags": ["a=b"]}],
                      [{"expressions": ["host=~("], "metaTags": ["a=b"]}], [{"expressions": ["a=b"], "metaTags": ["x"]}],
                      [{"expressions": "a=b", "metaTags": ["a=b"]}], [{"expressions": ["a=b"], "metaTags": []}]):
            yield post_json(path, wrap(value))
            yield get("/metaTags")
        for body in ("", "x", "[]", '{"records":1}', "null", "1"):
            yield post_json(path, body)
        yield post_json(path, wrap([rule]))
        yield get("/render", dict(SPAN, target="seriesByTag('zone=a')", format="json"))
    yield get("/metaTags/")
    yield get("/metaTags/upsert")


def event_cases():
    for event in ({"what": "deploy", "tags": ["a", "b"], "when": DAY, "data": "x"}, {"what": "late", "tags": "b c", "when": DAY + 60.5},
                  {"what": "none", "when": DAY + 90}, {}, [], {"what": None}, {"what": 5, "when": DAY}, {"what": "x", "tags": 5},
                  {"what": "x", "tags": [5]}, {"what": "x", "when": "y"}, {"what": "x", "when": 1e300}, "", "x", "1",
                  {"what": "x" * 70000, "when": DAY}, {"what": "x", "tags": None, "data": {"a": 1}, "when": DAY}):
        yield post_json("/events/", event)
    for params in ({}, {"tags": "a"}, {"tags": "a b"}, {"tags": ["a", "c"], "set": "union"}, {"tags": "a b", "set": "intersection"},
                   {"tags": "a", "set": "x"}, {"from": DAY + 30}, {"until": DAY + 30}, {"from": "x"}, {"until": "x"}, {"jsonp": "f"}, {"tags": "none"}):
        yield get("/events/get_data", params)
    for path in ("/events", "/events/", "/events/1", "/events/1/", "/events/99", "/events/x", "/events/-1"):
        yield get(path)
    yield form("/events/get_data", {"tags": "a"})
    yield post_json("/events", {"what": "now", "tags": "n"})
    yield get("/events/get_data", {"tags": "n"})


def moving_cases():
    now = int(time.time()) // 60 * 60
    yield post("/api/v1/carbon", "moving.a 5 %d\n" % now, is_moving=True)
    yield get("/render", {"target": "moving.a", "from": "-2min", "format": "json", "noNullPoints": 1}, rules=[numbers])
    yield get("/render", {"target": "removeEmptySeries(moving.none)", "format": "json"})


def delete_cases():
    for path, params in (("/metrics/delete", [{}, {"query": "none.*"}, {"query": "servers.db1.*"}, {"query": ""}, {"query": "["}]),
                         ("/tags/delSeries", [{}, {"path": "disk.used;host=web2;datacenter=y"}, {"path": "none;a=b"}, {"path": ";"}]),
                         ("/tags/delByQuery", [{}, {"expr": "host=web1"}, {"expr": "host=web1", "execute": "true"}, {"expr": "x"},
                                               {"expr": "host=web1", "limit": "x"}, {"expr": "host=web1", "olderThan": "x"},
                                               {"expr": "host=web1", "execute": "x"}, {"expr": "host=web1", "archive": "true"}])):
        for given in params:
            yield form(path, given)
        yield get(path)
    yield get("/metrics/index.json")


def other_cases():
    yield get("/version/")
    yield get("/functions")
    yield get("/functions", {"grouped": 1})
    for name in ("sumSeries", "none", "", "alias"):
        yield get("/functions/" + name)
    for path in ("/dashboard", "/dashboard/x/y", "/composer", "/composer/x", "/browser", "/browser/x", "/account", "/account/login"):
        yield get(path)
        yield post(path)
    yield get("/lines")
    yield get("/metrics/search")


def cases():
    for group in (carbon_cases, render_cases, find_cases, tag_cases, meta_tag_cases, event_cases, moving_cases, other_cases, delete_cases):
        yield from group()


def schemas():
    """storage-schemas.conf that keeps points of any age, so that no answer depends on the day of the run."""
    return "[short]\npattern = ^short\\.\nretentions = 10s:1h,60s:100y\n[all]\npattern = .*\nretentions = 60s:100y\n"
