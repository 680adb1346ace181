"""Requests that belong to no protocol: status, administration, pages, origins, hosts, limits, tenants, read-only servers."""
import gzip
import time

from cases_prometheus import label, raw_series, read_query
from exchange import DAY, FORM, Case, form, get, post, post_json, remote_write, write_headers
from tsdbwire import snappy_literal
from varying import between, durations, field, numbers, samples, shape, unordered, unread

BUILD = [field("revision"), field("buildDate"), field("branch"), field("chronolithVersion"), field("buildUser")]
LISTS = ("tenants", "rejects", "top_queries", "metric_usage")


def status_cases():
    yield get("/api/v1/status/buildinfo", rules=BUILD)
    yield get("/version", rules=BUILD)
    yield get("/api/v1/status/runtimeinfo", rules=[field("GOMAXPROCS")])
    for params in ({}, {"limit": 2}, {"limit": 0}, {"limit": "x"}, {"limit": 100000}, {"match[]": "up"}, {"match[]": "("}, {"match[]": "up", "start": "x"},
                   {"match[]": "many", "start": DAY, "end": DAY + 600, "limit": 1}):
        yield get("/api/v1/status/tsdb", params, rules=[field("memoryInBytes"), field("chunkCount")])
    yield get("/api/v1/status/tsdb/blocks")
    for what in LISTS:
        # The counts of refused samples depend on no time; which examples are kept, sizes, durations and the
        # order by them do.
        rules = [unordered("perMinute", "examples")] if what == "rejects" else [shape]
        for params in ({}, {"limit": "x"}, {"limit": 0}, {"limit": 10 ** 9}, {"sort": "x"}, {"sort": ""}, {"limit": 1}):
            yield get("/api/v1/status/" + what, params, rules=rules)
    for path in ("storage", "memory", "bucket"):
        yield get("/api/v1/status/" + path, rules=[shape])
    for path in ("flags", "settings", "config", "walreplay", "active_queries"):
        yield get("/api/v1/status/" + path, rules=[durations, numbers])
    for params in ({"id": 999}, {"id": "x"}, {}):
        yield form("/api/v1/status/active_queries/kill", params)
    yield get("/api/v1/status/active_queries/kill")
    for pattern in ("chronolith_http_requests_total", "(", "none", "chronolith_w.*"):
        yield get("/api/v1/status/self_metrics", {"metric_name_pattern": pattern}, rules=[numbers])
    yield get("/api/v1/status/nothing")
    for path in ("alerts", "alertmanagers", "notifications", "targets", "scrape_pools", "features", "rules", "notifications/live"):
        yield get("/api/v1/" + path)
        yield post("/api/v1/" + path)
    for params in ({"type": "alert"}, {"type": "x"}, {"match[]": "("}, {"exclude_alerts": "x"}, {"group_limit": "x"}, {"group_limit": 0}, {"group_limit": 1},
                   {"group_next_token": "x"}, {"group_limit": 1, "group_next_token": "x"}, {"match[]": "up", "type": "record"}):
        yield get("/api/v1/rules", params)
    for params in ({}, {"state": "active"}, {"state": "x"}, {"scrapePool": "x"}):
        yield get("/api/v1/targets", params)
    for params in ({}, {"match_target": "("}, {"match_target": "{job='x'}"}, {"limit": "x"}, {"metric": "up"}):
        yield get("/api/v1/targets/metadata", params)
    for params in ({}, {"scrapePool": "x"}, {"scrapePool": "x", "labels": "x"}, {"scrapePool": "x", "labels": "{}"},
                   {"scrapePool": "x", "labels": '{"a":1}'}, {"scrapePool": "x", "labels": '{"a"}'}, {"scrapePool": "x", "labels": "[]"},
                   {"scrapePool": "x", "labels": '{"a":"b"'}, {"scrapePool": "x", "labels": '{"a":"\\x"}'}, {"scrapePool": "x", "labels": "tru"},
                   {"scrapePool": "x", "labels": '{"a":1.}'}, {"scrapePool": "x", "labels": '{"a":"b"} x'}):
        yield get("/api/v1/targets/relabel_steps", params)
        yield get("/api/v1/scrape_pools/config", params)
    for version in ("3.1", "3.2", "x"):
        yield get("/api/v1/openapi.yaml", {"openapi_version": version})
    yield get("/api/v1/openapi.yaml", headers={"Accept-Encoding": "gzip"})


def page_cases():
    """Pages and paths without a route; scripts and styles have names of the build."""
    names = [between("/ui/", '"')]
    for path in ("/", "/graph", "/explore", "/storage", "/queries", "/tenants", "/rejects", "/plan", "/settings", "/cardinality", "/tsdb-status",
                 "/alerts", "/rules", "/config", "/flags"):
        yield get(path, rules=names)
    for path in ("/ui/x/y.js", "/ui/", "/nothing", "/api", "/api/v1", "/api/v1/", "/api/v2/", "/favicon.ico", "/..", "/a/../graph", "//", "/-/", "/-/nothing",
                 "/api/v1/%00", "/api/v1/query%20", "/metrics/", "/API/V1/QUERY", "/graph/", "/\\evil", "//evil.example/%2f.."):
        yield get(path, rules=names)
    yield post("/nothing", b"x" * 1000)
    yield post("/graph")
    yield Case("DELETE", "/")
    yield Case("HEAD", "/", rules=names)
    yield Case("BREW", "/api/v1/query")
    for path in ("/-/healthy", "/-/ready", "/metrics"):
        for method in ("GET", "HEAD", "OPTIONS", "PUT"):
            yield Case(method, path, rules=[samples, unread] if path == "/metrics" and method == "GET" else [])
    for path in ("/-/reload", "/-/quit"):
        for method in ("GET", "POST", "PUT"):
            yield Case(method, path)
    yield get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}, rules=[unread])


def admin_cases():
    root = "/api/v1/admin/tsdb/"
    for params in ({}, {"match[]": "("}, {"match[]": "nothing"}, {"match[]": "many{i='001'}"}, {"match[]": "up", "start": "x"}, {"match[]": "{}"},
                   {"match[]": "up", "start": DAY + 60, "end": DAY}, {"match[]": "dup", "start": DAY, "end": DAY + 20}, {"match[]": "up", "end": "x"}):
        yield form(root + "delete_series", params)
    yield get("/api/v1/query", {"query": "count(many)", "time": DAY + 60})
    yield get("/api/v1/query", {"query": "dup[1h]", "time": DAY + 600})
    for what in ("delete_series", "clean_tombstones", "snapshot", "compaction"):
        yield get(root + what)
        yield Case("OPTIONS", root + what)
    for params in ({}, {"paused": "x"}, {"paused": "true"}, {"paused": "false"}):
        yield form(root + "compaction", params)
    snapshot = field("name")
    for params in ({"skip_head": "true"}, {"skip_head": "x"}, {"skip_head": "false"}):
        yield form(root + "snapshot", params, rules=[snapshot])
    yield Case("PUT", root + "snapshot", rules=[snapshot])
    yield post(root + "clean_tombstones")
    yield Case("PUT", root + "clean_tombstones")
    yield Case("PUT", root + "compaction")
    yield Case("PUT", root + "delete_series", {"match[]": "nothing"})
    yield get(root + "nothing")


def origin_cases():
    """A server with `--web.cors.origin` and `--web.allowed-hosts`."""
    good, bad = "https://good.example", "https://bad.example"
    for origin in (good, bad, "null", ""):
        headers = {"Origin": origin}
        for path in ("/api/v1/query?query=1&time=1", "/query?q=SHOW+DATABASES", "/render?target=a&format=json", "/ping", "/nothing"):
            yield Case("GET", path, headers=headers)
            yield Case("OPTIONS", path, headers=dict(headers, **{"Access-Control-Request-Method": "POST"}))
        yield form("/query", {"q": "SHOW DATABASES"}, headers)
        yield post("/api/v1/write", b"", headers=headers)
        yield post("/write", "m v=1 1", {"db": "d"}, headers)
        yield form("/api/v1/query", {"query": "1", "time": 1}, headers)
        yield get("/query", {"q": "CREATE DATABASE x"}, headers)
        yield post("/-/reload", headers=headers)
        yield post_json("/events/", {}, headers.items())
        yield post("/api/v1/admin/tsdb/delete_series", headers=headers)
    for site in ("cross-site", "same-origin", "none", "same-site"):
        yield post("/api/v1/write", b"", headers={"Sec-Fetch-Site": site})
        yield get("/query", {"q": "SHOW DATABASES"}, {"Sec-Fetch-Site": site})
    for host in ("evil.example", "localhost", "LOCALHOST:99", "a.allowed.example", "", "[::1]", "x y"):
        yield get("/-/ready", headers={"Host": host})
        yield post("/write", "m v=1 1", headers={"Host": host})
    yield from prometheus_database_cases()
    yield get("/-/ready", headers={"Host": None})
    yield get("/-/ready", headers=[("Host", "localhost"), ("Host", "evil.example")])


def prometheus_database_cases():
    """InfluxQL over the series of other protocols, in a database that cannot be written to."""
    yield remote_write([(label("served", a="b"), [(DAY * 1000, 1.0), (DAY * 1000 + 5, 2.0)])])
    for text in ("SELECT * FROM served", "SHOW MEASUREMENTS", "SHOW TAG KEYS", "SHOW RETENTION POLICIES", "SHOW DATABASES", "DROP DATABASE prom",
                 "SELECT value INTO prom..x FROM served", "DROP MEASUREMENT served", "CREATE RETENTION POLICY r ON prom DURATION 3d REPLICATION 1"):
        yield form("/query", {"q": text, "db": "prom"})
    yield post("/write", "m v=1 1", {"db": "prom"})
    yield post("/api/v2/write", "m v=1 1", {"bucket": "prom"})
    yield remote_write([(label("m"), [(DAY * 1000, 1.0)])], path="/api/v1/prom/write", params={"db": "prom"})
    yield post("/api/v1/prom/read", snappy_literal(read_query([("__name__", "=", "served")])), {"db": "prom"}, write_headers())


def tenant_cases():
    """A server with `--multitenancy`; tenant `small` has limits in the file."""
    team = {"X-Scope-OrgID": "team-a"}
    callers = [{}, {"X-Scope-OrgID": ""}, {"X-Scope-OrgID": "a/b"}, {"X-Scope-OrgID": ".."}, {"X-Scope-OrgID": "x" * 151}, {"X-Scope-OrgID": "a|b"},
               {"X-Scope-OrgID": "\xe9"}, [("X-Scope-OrgID", "a"), ("X-Scope-OrgID", "b")], team]
    for caller in callers:
        headers = list(caller.items()) if isinstance(caller, dict) else caller
        write = remote_write([(label("m", a="b"), [(DAY * 1000, 1.0)])])
        yield post("/api/v1/write", write.body, headers=list(write_headers().items()) + headers)
        yield post("/api/v1/read", snappy_literal(read_query([("__name__", "=", "m")])), headers=headers)
        yield form("/query", {"q": "CREATE DATABASE d"}, headers)
        yield post("/write", "m v=1 1", {"db": "d"}, headers)
        yield post("/api/v1/prom/write", write.body, {"db": "d"}, list(write_headers().items()) + headers)
        yield post("/api/v1/carbon", "a.b 1 %d\n" % DAY, headers=headers)
        yield post_json("/events/", {"what": "x", "when": DAY}, headers)
        for path in ("/api/v1/query?query=m&time=%d" % DAY, "/api/v1/series?match[]=m", "/api/v1/labels", "/api/v1/metadata", "/render?target=a.b&format=json",
                     "/metrics/find?query=*", "/tags", "/events", "/query?q=SHOW+DATABASES", "/federate?match[]=m", "/api/v1/status/tsdb",
                     "/api/v1/query_range?query=m&start=1&end=2&step=1", "/api/v1/search/metric_names", "/api/v1/graphite/refused", "/api/v1/query_exemplars?query=m"):
            yield Case("GET", path, headers=headers, rules=[field("memoryInBytes")])
        yield post("/api/v1/admin/tsdb/delete_series", headers=headers)
        for path in ("/debug/vars", "/api/v1/status/tenants"):
            yield Case("GET", path, headers=headers, rules=[shape])
    yield from small_tenant_cases()
    yield get("/api/v1/query", {"query": "m", "time": DAY}, {"X-Scope-OrgID": "other"})


def small_tenant_cases():
    small = [("X-Scope-OrgID", "small")]
    three = [(label("m", i=str(i)), [(DAY * 1000, 1.0)]) for i in range(3)]
    for series in (three[:1], three, [(label("m", i="0"), [(DAY * 1000 + n, 1.0) for n in range(60)])],
                   [(label("m", **{"l%d" % n: "v" for n in range(9)}), [(DAY * 1000, 1.0)])],
                   [(label("m", longer_than_ten="v"), [(DAY * 1000, 1.0)])], [(label("m", i="v" * 50), [(DAY * 1000, 1.0)])]):
        for proto in (1, 2):
            case = remote_write(series, proto)
            yield post("/api/v1/write", case.body, headers=list(write_headers(proto).items()) + small)
    for params in ({"query": "m", "time": DAY},):
        yield get("/api/v1/query", params, small)
    yield form("/query", {"q": "CREATE DATABASE d"}, small)
    yield post("/write", "m,i=1 v=1\nm,i=2 v=1\nm,i=3 v=1", {"db": "d"}, small)
    yield post("/api/v1/carbon", "a.b 1 %d\na.c 1 %d\na.d 1 %d\n" % (DAY, DAY, DAY), headers=small)


def limit_cases():
    """A server with tiny limits, without the APIs of administration."""
    series = [(label("m", i=str(i)), [((DAY + 15 * n) * 1000, float(n)) for n in range(10)]) for i in range(8)]
    yield remote_write(series)
    yield remote_write(series, 2)
    yield from limit_writes()
    now = int(time.time()) * 1000
    for text in ("m[10m]", "m", "count_over_time(m[10m])", "sum(sum_over_time(m[10m:1s]))", "m + on (i) m"):
        yield get("/api/v1/query", {"query": text, "time": DAY + 150})
        yield get("/api/v1/query_range", {"query": text, "start": DAY, "end": DAY + 150, "step": 1})
    yield get("/api/v1/query_range", {"query": "m", "start": DAY, "end": DAY + 10, "step": 1})
    yield post("/api/v1/read", snappy_literal(read_query([("__name__", "=", "m")])), headers=write_headers())
    yield get("/api/v1/series", {"match[]": "m", "start": DAY, "end": DAY + 150})
    yield remote_write([(label("late"), [(now, 1.0), (now - 100, 2.0), (now - 3600 * 1000, 3.0)])], is_moving=True)
    yield remote_write([(label("early"), [(now + 3600 * 1000, 1.0)])], is_moving=True, rules=[numbers])
    yield from limit_influx()
    yield from limit_graphite()
    for path in ("delete_series", "clean_tombstones", "snapshot", "compaction"):
        yield form("/api/v1/admin/tsdb/" + path, {"match[]": "m"})
    yield post("/-/reload")
    for path in ("/metrics/delete", "/tags/delSeries", "/tags/delByQuery"):
        yield form(path, {"query": "a", "path": "a", "expr": "name=a"})
    yield get("/api/v1/status/settings", rules=[durations, numbers])


def limit_writes():
    yield remote_write([(label("wide", **{"l%d" % n: "v" for n in range(9)}), [(DAY * 1000, 1.0)])])
    yield remote_write([(label("long", longer_than_ten="v"), [(DAY * 1000, 1.0)])])
    yield remote_write([(label("value", i="v" * 50), [(DAY * 1000, 1.0)])])
    yield remote_write([(label("many", i=str(i)), [(DAY * 1000, 1.0)]) for i in range(60)])
    yield remote_write([(label("many", i=str(i)), [(DAY * 1000, 1.0)]) for i in range(60)], 2)
    yield post("/api/v1/write", b"\x00" * 5000, headers=write_headers())
    yield post("/api/v1/write", snappy_literal(raw_series([("__name__", "x"), ("a", "v" * 3000)])), headers=write_headers())
    bomb = bytearray(b"\xa0\x9c\x01\x00a")
    for _ in range(312):
        bomb += bytes((63 << 2 | 2, 1, 0))
    yield post("/api/v1/write", bytes(bomb), headers=write_headers())
    yield post("/api/v1/prom/write", bytes(bomb), {"db": "d"}, write_headers())


def limit_influx():
    yield form("/query", {"q": "CREATE DATABASE d"})
    lines = ["cpu,host=h%d v=%d %d" % (n, n, (DAY + n) * 10 ** 9) for n in range(12)]
    yield post("/write", "\n".join(lines[:4]), {"db": "d"})
    yield post("/write", "\n".join(lines), {"db": "d"})
    yield post("/write", "\n".join("other,n=%d v=1 1" % n for n in range(30)), {"db": "d"})
    yield post("/write", "text v=\"%s\" 1" % ("x" * 300), {"db": "d"})
    yield post("/write", "line v=1,w=\"%s\" 1" % ("x" * 900), {"db": "d"})
    yield post("/write", "x" * 3000, {"db": "d"})
    yield post("/api/v2/write", "x" * 3000, {"bucket": "d"})
    yield post("/write", gzip.compress(b"m v=1 1\n" * 4000, mtime=0), {"db": "d"}, {"Content-Encoding": "gzip"})
    for text in ("SELECT v FROM cpu", "SELECT mean(v) FROM cpu WHERE time >= %ds AND time < %ds GROUP BY time(1s)" % (DAY, DAY + 600),
                 "SELECT v FROM cpu GROUP BY host", "SELECT v FROM cpu LIMIT 1", "SHOW SERIES", "SHOW TAG VALUES WITH KEY = host"):
        for changed in ({}, {"chunked": "true"}, {"pretty": "true"}):
            yield get("/query", dict({"q": text, "db": "d"}, **changed))
    yield get("/query", {"q": "SELECT v FROM cpu", "db": "d"}, {"Accept": "application/csv"})


def limit_graphite():
    lines = ["a.s%d %d %d" % (n, n, DAY + 60 * k) for n in range(3) for k in range(5)]
    yield post("/api/v1/carbon", "\n".join(lines) + "\n")
    yield post("/api/v1/carbon", "\n".join("b.s%d 1 %d" % (n, DAY) for n in range(80)) + "\n")
    yield post("/api/v1/carbon", "x" * 5000)
    yield post("/api/v1/carbon", gzip.compress(b"m 1 1\n" * 4000, mtime=0), headers={"Content-Encoding": "gzip"})
    span = {"from": DAY - 60, "until": DAY + 600, "format": "json"}
    for target in ("a.*", "a.s1", ["a.s1"] * 9, "sumSeries(a.*)", "b.*", "seriesByTag('name=a.s1')"):
        yield get("/render", dict(span, target=target))
        yield get("/showplan", dict(span, target=target))
    yield get("/render", dict(span, target="a.s1", until=DAY + 86400))
    for query in ("*", "a.*", "b.*"):
        yield get("/metrics/find", {"query": query})
        yield get("/metrics/expand", {"query": query})
    yield get("/metrics/index.json")
    for path in ("/tags", "/tags/name", "/tags/findSeries?expr=name=~.*", "/tags/autoComplete/values?tag=name", "/tags/terms?expr=name=~.*&tags=name"):
        yield get(path)
    for size in (10, 90, 200):
        yield post_json("/events/", {"what": "x" * size, "when": DAY + size})
    for n in range(4):
        yield post_json("/events/", {"what": "e%d" % n, "when": DAY + n})
        yield post_json("/metaTags/upsert", {"expressions": ["name=a%d" % n], "metaTags": ["m=%d" % n]})
    yield post_json("/metaTags/swap", {"records": [{"expressions": ["name=a"], "metaTags": ["m=" + "x" * 300]}]})
    yield get("/events")
    yield get("/metaTags")


def read_only_cases():
    """A server over a bucket that has the snapshot of another one."""
    yield get("/api/v1/query", {"query": "up", "time": DAY + 60})
    yield get("/api/v1/query_range", {"query": "http_requests_total", "start": DAY, "end": DAY + 600, "step": 60})
    yield get("/api/v1/series", {"match[]": "up", "start": DAY, "end": DAY + 600})
    yield get("/api/v1/labels")
    yield get("/api/v1/status/tsdb")
    yield get("/api/v1/status/tsdb/blocks", rules=[numbers])
    yield get("/api/v1/status/bucket", rules=[numbers])
    yield get("/api/v1/status/storage", rules=[numbers, field("version")])
    yield get("/render", {"target": "servers.*.cpu", "from": DAY, "until": DAY + 300, "format": "json"})
    yield get("/metrics/find", {"query": "servers.*"})
    yield get("/api/v1/metadata")
    yield get("/api/v1/query_exemplars", {"query": "up"})
    yield post("/api/v1/read", snappy_literal(read_query([("__name__", "=", "up")])), headers=write_headers())
    yield remote_write([(label("m"), [(DAY * 1000, 1.0)])])
    yield remote_write([(label("m"), [(DAY * 1000, 1.0)])], 2)
    yield post("/write", "m v=1 1", {"db": "d"})
    yield post("/api/v2/write", "m v=1 1", {"bucket": "d"})
    yield remote_write([(label("m"), [(DAY * 1000, 1.0)])], path="/api/v1/prom/write", params={"db": "d"})
    yield post("/api/v1/carbon", "a 1 1\n")
    for text in ("SHOW DATABASES", "CREATE DATABASE x", "SELECT * FROM cpu LIMIT 1", "DROP DATABASE d", "CREATE USER u WITH PASSWORD 'p'", "SHOW USERS"):
        yield form("/query", {"q": text, "db": "d"})
    for path in ("delete_series", "clean_tombstones", "snapshot", "compaction"):
        yield form("/api/v1/admin/tsdb/" + path, {"match[]": "m", "paused": "true"})
    yield post_json("/events/", {"what": "x"})
    yield post_json("/metaTags/upsert", {"expressions": ["a=b"], "metaTags": ["c=d"]})
    for path in ("/events", "/metaTags", "/tags", "/api/v1/graphite/series", "/api/v1/graphite/refused", "/health", "/-/ready", "/-/healthy", "/ping"):
        yield get(path)
    yield post("/metrics/delete", "query=a", headers={"Content-Type": FORM})
    yield post("/tags/delSeries", "path=a;b=c", headers={"Content-Type": FORM})


def cases():
    for group in (status_cases, page_cases, admin_cases):
        yield from group()
