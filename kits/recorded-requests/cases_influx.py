"""Requests in InfluxDB's protocols: line protocol, InfluxQL, users, remote write and read of a database."""
import base64
import gzip
import hashlib
import hmac
import json
import time

from cases_prometheus import label, raw_write, remote_read_cases, raw_series
from exchange import DAY, FORM, Case, Packet, form, get, post, remote_write, write_headers
from varying import durations, field, numbers

NS = 1000000000
# Years in which no token of this kit expires.
FAR_S = 4102444800


def stamp(seconds):
    return (DAY + seconds) * NS


def points():
    """Lines with fields of all kinds, tags with special characters, gaps."""
    lines = []
    for n in range(60):
        for host in ("a", "b"):
            if n % 10 == 7 and host == "b":
                continue
            value = n * 1.5 if host == "a" else 100 - n
            lines.append("cpu,host=%s,dc=x usage=%s,count=%di,busy=%s %d" % (
                host, value, n * 3, "true" if n % 2 else "false", stamp(n * 10)))
        lines.append('log,level=%s text="line %d, \\"quoted\\"" %d' % ("info" if n % 3 else "warn", n, stamp(n * 10)))
    lines.append("mem,host=a,free\\ text=x\\,y used=1u,total=2i %d" % stamp(0))
    lines.append("disk\\ full,path=/ü used=1e3 %d" % stamp(5))
    return lines


GOOD_LINES = ["m v=1 %d" % stamp(0), "m,t=a v=1i %d" % stamp(1), "m w=\"x\",x=t,y=F %d" % stamp(2), "# comment",
              "m v=1 %d\n\nm v=2 %d" % (stamp(3), stamp(4)), "m v=1 %d" % stamp(0), "m v=7 %d" % stamp(0),
              "m,b=1,a=2 v=-0.5e-3 %d" % stamp(9), "m v=1,v=2 %d" % stamp(10), "m v=1\r\n", ""]
BAD_LINES = ["m", "m ", "m v", "m v=", "m v=abc", "m v=1x", "m v=\"x", "m v=1 abc", "m v=1 1 1", ",a=b v=1", "m, v=1",
             "m,a v=1", "m,a= v=1", "m,=b v=1", "m =1", "m v=1i5", "m v=9223372036854775808i", "m v=-1u", "m v=1e999",
             "m v=NaN", "m v=inf", "m v=1 9223372036854775808", "m,a=1,a=2 v=1", "m v=1,", "m v=tru", "m v=--1", "\x00",
             "m,time=1 v=1", "m time=1", "_measurement v=1 1", "m _field=1", "m v=\"a\" %d" % stamp(0),
             "m v=1i %d" % stamp(0), "m v=1 %d\nbad\nm v=2 %d" % (stamp(20), stamp(21)), "bad\nworse\n", "m\\ v=1",
             "m v=.", "m v=+", "m v=0x1", "m,a=b\\ v=1", "x" * 70000 + " v=1", "m,a=" + "y" * 70000 + " v=1",
             "m v=1 -9223372036854775809"]


def write_cases():
    yield form("/query", {"q": "CREATE DATABASE d"})
    yield post("/write", "\n".join(points()), {"db": "d"})
    for number, line in enumerate(GOOD_LINES):
        yield post("/write", line, {"db": "d", "precision": "ns"} if number % 2 else {"db": "d"})
    for line in BAD_LINES:
        yield post("/write", line, {"db": "d"})
        if len(line) < 9:
            yield post("/api/v2/write", line, {"bucket": "d"})
    for precision in ("n", "ns", "u", "us", "µ", "ms", "s", "m", "h", "x", ""):
        yield post("/write", "p,q=%s v=1 28333440" % (precision or "none"), {"db": "d", "precision": precision})
        yield post("/api/v2/write", "p2,q=%s v=1 28333440" % (precision or "none"),
                   {"bucket": "d/autogen", "precision": precision})
    for params in ({}, {"db": ""}, {"db": "none"}, {"db": "d", "rp": "none"}, {"db": "d", "rp": "autogen"},
                   {"db": "d", "consistency": "all"}, {"db": "d", "consistency": "x"}, {"db": "_internal"},
                   {"db": "d", "rp": ""}, {"db": ["d", "none"]}, {"db": "a/b"}):
        yield post("/write", "params v=1 %d" % stamp(0), params)
    for params in ({}, {"bucket": "none"}, {"bucket": "d/none"}, {"bucket": "d/"}, {"bucket": "/"}, {"bucket": "d", "org": "x"},
                   {"bucket": "a/b/c"}, {"bucket": ""}, {"db": "d"}):
        yield post("/api/v2/write", "params v=1 %d" % stamp(0), params)
    yield from body_cases()
    yield from prometheus_write_cases()


def body_cases():
    line = ("gzipped v=1 %d\n" % stamp(0)).encode()
    packed = gzip.compress(line, mtime=0)
    damaged = packed[:-8] + b"\x00\x00\x00\x00" + packed[-4:]
    for body in (packed, packed[:-9], packed[:5], damaged, line, b"", packed + packed, packed + b"x"):
        for path, params in (("/write", {"db": "d"}), ("/api/v2/write", {"bucket": "d"})):
            yield post(path, body, params, {"Content-Encoding": "gzip"})
    for encoding in ("deflate", "zstd", "identity", "GZIP", ""):
        yield post("/write", line, {"db": "d"}, {"Content-Encoding": encoding})
    yield post("/write", line, {"db": "d"}, {"Content-Type": FORM})
    yield post("/write", b"v v=\"\xff\xfe\" 1", {"db": "d"})
    yield Case("POST", "/write", {"db": "d"}, body=b"x", announced=1 << 30)
    yield Case("POST", "/write", {"db": "d"}, body=b"m v=1 1\n", announced=99)
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        yield Case(method, "/write?db=d")
        yield Case(method, "/api/v2/write?bucket=d")
    yield post("/api/v2/query", "from(bucket: \"d\")")
    yield get("/api/v2/query")
    yield post("/api/v2/delete", "{}")
    yield get("/api/v2/buckets")


def prometheus_write_cases():
    path = "/api/v1/prom/write"
    series = [(label("prom_metric", job="a"), [((DAY + 15 * n) * 1000, float(n)) for n in range(20)])]
    series.append((label("prom_nan"), [(DAY * 1000, float("nan")), (DAY * 1000 + 1, float("inf"))]))
    for params in ({"db": "d"}, {}, {"db": "none"}, {"db": "d", "rp": "none"}, {"db": "d", "rp": "autogen"}):
        yield remote_write(series, path=path, params=params)
    yield remote_write(series, 2, path, params={"db": "d"})
    yield post(path, b"no snappy", {"db": "d"}, write_headers())
    yield post(path, b"", {"db": "d"}, write_headers())
    yield raw_write(raw_series([("a", "b")]), path, params={"db": "d"})
    yield raw_write(raw_series([]), path, params={"db": "d"})
    yield raw_write(b"\x0a\xff", path, params={"db": "d"})
    yield Case("GET", path)
    for params in ({"db": "d"}, {}, {"db": "none"}, {"db": "d", "rp": "none"}):
        yield from list(remote_read_cases("/api/v1/prom/read", params))[:None if params == {"db": "d"} else 1]


SELECTS = [
    "SELECT * FROM cpu LIMIT 3", "SELECT usage FROM cpu WHERE host = 'a' LIMIT 2", "SELECT mean(usage) FROM cpu",
    "SELECT mean(usage) FROM cpu WHERE {span} GROUP BY time(2m)", "SELECT count(*) FROM cpu GROUP BY host",
    "SELECT max(usage), min(count) FROM cpu WHERE {span} GROUP BY time(5m), host fill(none)",
    "SELECT sum(usage) FROM cpu WHERE {span} GROUP BY time(1m), host fill(linear) LIMIT 4 OFFSET 2",
    "SELECT sum(usage) FROM cpu WHERE {span} GROUP BY time(70s, 10s) fill(0) ORDER BY time DESC",
    "SELECT derivative(mean(usage), 1m) FROM cpu WHERE {span} GROUP BY time(2m)", "SELECT text FROM log LIMIT 2",
    "SELECT percentile(usage, 90), median(usage), stddev(usage), spread(usage), mode(count) FROM cpu",
    "SELECT top(usage, host, 2) FROM cpu", "SELECT bottom(usage, 3) FROM cpu", "SELECT first(*), last(*) FROM cpu",
    "SELECT distinct(level) FROM log", "SELECT distinct(count) FROM cpu LIMIT 3", "SELECT usage + count * 2 FROM cpu LIMIT 2",
    "SELECT moving_average(usage, 3) FROM cpu LIMIT 2", "SELECT difference(usage) FROM cpu LIMIT 2",
    "SELECT integral(usage) FROM cpu", "SELECT cumulative_sum(count) FROM cpu LIMIT 3", "SELECT elapsed(usage, 1s) FROM cpu LIMIT 2",
    "SELECT holt_winters(mean(usage), 2, 2) FROM cpu WHERE {span} GROUP BY time(2m)", "SELECT sample(usage, 0) FROM cpu",
    "SELECT * FROM /^(cpu|mem)$/ LIMIT 1", "SELECT * FROM d.autogen.cpu LIMIT 1", "SELECT * FROM none", "SELECT none FROM cpu",
    "SELECT mean(m) FROM (SELECT mean(usage) AS m FROM cpu GROUP BY host)", "SELECT usage FROM cpu WHERE busy = true LIMIT 2",
    "SELECT usage FROM cpu WHERE host =~ /a|b/ SLIMIT 1", "SELECT * FROM cpu WHERE text = 'x'", "SELECT \"usage\"::integer FROM cpu LIMIT 1",
    "SELECT usage::string FROM cpu LIMIT 1", "SELECT count(busy) FROM cpu", "SELECT host, usage FROM cpu LIMIT 2",
    "SELECT usage FROM cpu GROUP BY * LIMIT 1", "SELECT usage FROM cpu TZ('Europe/Berlin') LIMIT 1", "SELECT * FROM \"disk full\"",
    "SELECT usage FROM cpu LIMIT 1 TZ('Europe/Berlin')", "SELECT v FROM m", "SELECT abs(usage), round(usage) FROM cpu LIMIT 2",
    "SELECT value FROM prom_metric LIMIT 2", "SELECT usage INTO copy FROM cpu GROUP BY *", "SELECT * FROM copy LIMIT 2",
    "SELECT usage INTO none.autogen.copy FROM cpu", "SELECT histogram(usage) FROM cpu", "SELECT * FROM p, p2",
]
STATEMENTS = [
    "SHOW DATABASES", "SHOW MEASUREMENTS", "SHOW MEASUREMENTS ON none", "SHOW MEASUREMENTS WITH MEASUREMENT =~ /c.*/",
    "SHOW MEASUREMENT CARDINALITY", "SHOW SERIES LIMIT 3", "SHOW SERIES FROM cpu", "SHOW SERIES CARDINALITY",
    "SHOW SERIES EXACT CARDINALITY", "SHOW TAG KEYS", "SHOW TAG KEYS FROM cpu", "SHOW TAG VALUES WITH KEY = host",
    "SHOW TAG VALUES WITH KEY IN (host, dc) WHERE host = 'a'", "SHOW TAG VALUES", "SHOW TAG VALUES CARDINALITY WITH KEY = host",
    "SHOW FIELD KEYS", "SHOW FIELD KEYS FROM cpu", "SHOW FIELD KEY CARDINALITY", "SHOW RETENTION POLICIES",
    "SHOW RETENTION POLICIES ON none", "SHOW USERS", "SHOW GRANTS FOR u", "SHOW SUBSCRIPTIONS", "SHOW CONTINUOUS QUERIES",
    "SHOW SHARDS", "SHOW SHARD GROUPS", "EXPLAIN SELECT mean(usage) FROM cpu",
    "CREATE DATABASE d", "CREATE DATABASE e WITH DURATION 3d REPLICATION 1 SHARD DURATION 1d NAME x", "CREATE DATABASE",
    "CREATE DATABASE \"\"", "CREATE DATABASE e WITH DURATION 1d", "CREATE DATABASE f WITH DURATION 1s",
    "CREATE RETENTION POLICY r ON d DURATION 3d REPLICATION 1", "CREATE RETENTION POLICY r ON d DURATION 4d REPLICATION 1",
    "CREATE RETENTION POLICY r2 ON d DURATION 1m REPLICATION 1", "CREATE RETENTION POLICY r3 ON none DURATION 3d REPLICATION 1",
    "CREATE RETENTION POLICY r4 ON d DURATION 3d REPLICATION 0", "CREATE RETENTION POLICY r5 ON d DURATION INF REPLICATION 1 SHARD DURATION 1h",
    "ALTER RETENTION POLICY r ON d DURATION 5d", "ALTER RETENTION POLICY none ON d DURATION 5d",
    "ALTER RETENTION POLICY r ON d DURATION 1m", "ALTER RETENTION POLICY r ON d DEFAULT", "SHOW RETENTION POLICIES ON d",
    "ALTER RETENTION POLICY autogen ON d DEFAULT", "DROP RETENTION POLICY r ON d", "DROP RETENTION POLICY none ON d",
    "DROP RETENTION POLICY r ON none", "CREATE USER u WITH PASSWORD 'p'", "CREATE USER u WITH PASSWORD 'q'",
    "CREATE USER a WITH PASSWORD 'p' WITH ALL PRIVILEGES", "CREATE USER b WITH PASSWORD ''", "GRANT READ ON d TO u",
    "GRANT READ ON none TO u", "GRANT ALL TO none", "SHOW GRANTS FOR u", "SHOW GRANTS FOR none", "SHOW USERS",
    "REVOKE READ ON d FROM u", "REVOKE ALL ON d FROM none", "SET PASSWORD FOR u = 'x'", "SET PASSWORD FOR none = 'x'",
    "DROP USER u", "DROP USER none", "DROP USER a",
    "CREATE CONTINUOUS QUERY c ON e BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(1h) END",
    "CREATE CONTINUOUS QUERY c ON e BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(1h) END",
    "CREATE CONTINUOUS QUERY c ON e BEGIN SELECT max(v) INTO o FROM m GROUP BY time(1h) END",
    "CREATE CONTINUOUS QUERY c2 ON e BEGIN SELECT v INTO o FROM m END",
    "CREATE CONTINUOUS QUERY c3 ON e BEGIN SELECT mean(v) FROM m GROUP BY time(1h) END",
    "CREATE CONTINUOUS QUERY c4 ON none BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(1h) END",
    "CREATE CONTINUOUS QUERY c5 ON e RESAMPLE EVERY 1h FOR 30m BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(2h) END",
    "CREATE CONTINUOUS QUERY c6 ON e RESAMPLE EVERY 2h FOR 4h BEGIN SELECT mean(v) INTO o FROM m GROUP BY time(1h) END",
    "SHOW CONTINUOUS QUERIES", "DROP CONTINUOUS QUERY c ON e", "DROP CONTINUOUS QUERY none ON e", "DROP CONTINUOUS QUERY c ON none",
    "CREATE SUBSCRIPTION s ON d.autogen DESTINATIONS ALL 'http://h:1'", "DROP SUBSCRIPTION s ON d.autogen",
    "KILL QUERY 999", "KILL QUERY x", "DROP MEASUREMENT copy", "DROP MEASUREMENT none", "DROP SERIES FROM p WHERE q = 's'",
    "DROP SERIES FROM p WHERE v = 1", "DELETE FROM p2 WHERE time < '2023-01-01'", "DELETE FROM none", "DELETE FROM cpu WHERE usage > 1",
    "DROP SHARD 99", "DROP DATABASE e", "DROP DATABASE none", "SHOW DATABASES",
]
BAD_STATEMENTS = [
    "", ";", "SELEC", "SELECT", "SELECT * FROM", "SELECT FROM cpu", "SELECT * cpu", "SELECT * FROM cpu WHERE", "SHOW", "SHOW X",
    "SELECT * FROM cpu LIMIT x", "SELECT mean(usage) FROM cpu GROUP BY time()", "SELECT mean(usage) FROM cpu GROUP BY time(0s)",
    "SELECT usage FROM cpu GROUP BY time(1m)", "SELECT mean(usage), usage FROM cpu", "SELECT nofunc(usage) FROM cpu",
    "SELECT mean() FROM cpu", "SELECT percentile(usage) FROM cpu", "SELECT top(usage) FROM cpu", "SELECT top(usage, 0) FROM cpu",
    "SELECT mean(usage) FROM cpu fill(x)", "SELECT * FROM cpu WHERE time > 'x'", "SELECT * FROM cpu TZ('No/Where')",
    "SELECT derivative(usage, 0s) FROM cpu", "SELECT * FROM cpu ORDER BY usage", "SELECT * FROM cpu WHERE host =~ /(/",
    "SELECT mean(usage) FROM cpu WHERE time > '2023-01-01' AND time < '2023-01-02' GROUP BY time(1ns)", "DROP DATABASE", "CREATE USER", "KILL QUERY",
    "SELECT 'x", "SELECT \"x FROM cpu", "SELECT count(distinct) FROM cpu", "SELECT * FROM cpu; SELEC", "EXPLAIN SHOW DATABASES",
    "SELECT mean(text) FROM log", "SELECT sum(busy) FROM cpu", "SELECT usage FROM cpu WHERE $x", "SELECT * FROM cpu WHERE host = $h",
    "SELECT elapsed(usage, -1s) FROM cpu", "SELECT moving_average(usage, 1) FROM cpu", "SELECT * FROM cpu SLIMIT -1", "INSERT x",
    "SELECT " + "(" * 2000 + "1", "SELECT count(count(usage)) FROM cpu", "SELECT difference(mean(usage)) FROM cpu", "GRANT X ON d TO u",
]
SPAN = "time >= %d AND time < %d" % (stamp(0), stamp(600))


def query_cases():
    for select in SELECTS:
        select = select.replace("{span}", SPAN)
        yield (form if "INTO" in select else get)("/query", {"q": select, "db": "d"})
    for statement in STATEMENTS:
        # Names of queries and of the statistics of a plan are the same in each run, its sizes are not.
        rules = [numbers] if statement.startswith("EXPLAIN") else []
        yield form("/query", {"q": statement, "db": "d"}, rules=rules)
    for statement in BAD_STATEMENTS:
        yield form("/query", {"q": statement, "db": "d"})
    yield get("/query", {"q": "SHOW QUERIES"}, rules=[durations, numbers])
    yield get("/query", {"q": "EXPLAIN ANALYZE SELECT usage FROM cpu", "db": "d"}, rules=[durations, numbers])
    yield get("/query", {"q": "SHOW DIAGNOSTICS"}, rules=[durations, numbers])
    yield get("/query", {"q": "SHOW STATS"}, rules=[numbers])
    yield get("/query", {"q": "SHOW STATS FOR 'httpd'"}, rules=[numbers])
    for statement in ("SELECT * FROM cpu", "DROP DATABASE d", "CREATE DATABASE x", "SHOW DATABASES; DROP DATABASE x",
                      "SELECT usage INTO o FROM cpu", "CREATE USER z WITH PASSWORD 'z'"):
        # Statements that change something are refused by GET.
        yield get("/query", {"q": statement + (" LIMIT 1" if "SELECT *" in statement else ""), "db": "d"})
    yield from format_cases()
    yield from parameter_cases()
    yield from moving_cases()
    yield from other_cases()


def format_cases():
    selects = ("SELECT usage, host FROM cpu LIMIT 5", "SELECT * FROM log LIMIT 2; SHOW DATABASES; SELECT x FROM", "SHOW TAG KEYS",
               "SELECT count(usage) FROM cpu GROUP BY host; SELECT none FROM cpu; SELECT sum(text) FROM log")
    for select in selects:
        for accept in ("application/json", "application/csv", "text/csv", "application/x-msgpack", "*/*", "text/html",
                       "application/json, text/csv;q=0.5", "image/png"):
            yield get("/query", {"q": select, "db": "d"}, {"Accept": accept})
        for changed in ({"pretty": "true"}, {"pretty": "x"}, {"chunked": "true"}, {"chunked": "true", "chunk_size": 2},
                        {"chunked": "true", "chunk_size": "x"}, {"epoch": "s"}, {"epoch": "ms", "pretty": "true"},
                        {"chunked": "x"}, {"chunked": "true", "chunk_size": "-1"}):
            yield get("/query", dict({"q": select, "db": "d"}, **changed))
    for epoch in ("h", "m", "s", "ms", "u", "µ", "ns", "n", "x", ""):
        yield get("/query", {"q": selects[0], "db": "d", "epoch": epoch})
    for accept in ("application/csv", "application/x-msgpack"):
        yield get("/query", {"q": selects[0], "db": "d", "chunked": "true", "chunk_size": 2}, {"Accept": accept})
        yield get("/query", {"q": selects[0], "db": "d", "epoch": "ms"}, {"Accept": accept})
    yield get("/query", {"q": selects[0], "db": "d"}, {"Accept-Encoding": "gzip"})
    yield get("/query", {"q": "SELECT * FROM cpu", "db": "d"}, {"Accept-Encoding": "gzip"})


def parameter_cases():
    select = "SELECT usage FROM cpu WHERE host = $h LIMIT 1"
    for params in ('{"h":"a"}', '{"h":1}', "{}", "[]", "null", "x", '{"h":null}', '{"h":[1]}', '{"h":{"string":"a"}}',
                   '{"h":{"x":"a"}}', '{"h":{"regex":"("}}', '{"h":{"a":1,"b":2}}', '{"h":{"duration":"x"}}',
                   '{"h":{"float":"x"}}', '{"h":{"identifier":"host"}}', '{"h":18446744073709551616}', "1", '"x"'):
        yield form("/query", {"q": select, "db": "d", "params": params})
    for params in ({"db": "d"}, {"q": "SELECT * FROM cpu LIMIT 1"}, {"q": "SELECT * FROM cpu LIMIT 1", "db": "none"},
                   {"q": "SELECT * FROM cpu LIMIT 1", "db": "d", "rp": "none"}, {"q": "", "db": "d"},
                   {"q": "SELECT * FROM cpu LIMIT 1", "db": "d", "async": "true"}):
        yield get("/query", params)
        yield form("/query", params)
    yield post("/query", b"q=\xff", headers={"Content-Type": FORM})
    yield post("/query", "SHOW DATABASES")
    yield post("/query", "SHOW DATABASES", headers={"Content-Type": "application/vnd.influxql"})
    yield get("/query", headers={"Accept": "text/html"})
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"):
        yield Case(method, "/query?q=SHOW+DATABASES")


def moving_cases():
    """Points and queries relative to the time of the run."""
    now = int(time.time()) // 60 * 60
    yield post("/write", "moving v=1 %d\nmoving v=2 %d" % (now - 600, now - 60), {"db": "d", "precision": "s"}, is_moving=True)
    yield get("/query", {"q": "SELECT v FROM moving WHERE time > now() - 1h", "db": "d", "epoch": "s"})
    yield get("/query", {"q": "SELECT count(v) FROM moving WHERE time > now() - 1h", "db": "d", "epoch": "ns"}, rules=[])
    yield post("/write", "moving2 v=1", {"db": "d"})
    yield get("/query", {"q": "SELECT v FROM moving2", "db": "d"})
    yield form("/query", {"q": "CREATE RETENTION POLICY short ON d DURATION 2h REPLICATION 1"})
    yield post("/write", "old v=1 %d" % stamp(0), {"db": "d", "rp": "short"})
    yield post("/write", "old v=1 %d\nold v=2" % stamp(0), {"db": "d", "rp": "short"})
    yield form("/query", {"q": "SELECT usage INTO d.short.copied FROM cpu", "db": "d"})
    yield remote_write([(label("old"), [(DAY * 1000, 1.0)])], path="/api/v1/prom/write", params={"db": "d", "rp": "short"})


def other_cases():
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        for path in ("/ping", "/status", "/health"):
            yield Case(method, path)
    yield get("/ping", {"verbose": "true"})
    yield get("/ping", {"verbose": "0"})
    yield get("/debug/vars", rules=[durations, numbers, field("PID"), field("uptime")])
    yield get("/ping", headers={"X-Request-Id": "my-own-id"})
    yield get("/ping", headers={"Request-Id": "my-own-id"})
    yield get("/ping", headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    for path in ("/debug/requests", "/debug/pprof/", "/api/v2", "/api/v2/ready", "/write/", "/query/"):
        yield get(path)


def udp_cases():
    lines = "packet v=1 %d\nbad line\npacket v=2 %d" % (stamp(0), stamp(1))
    yield form("/query", {"q": "CREATE DATABASE udp"})
    yield Packet("udp", "influx-udp", lines.encode())
    yield get("/query", {"q": "SELECT * FROM packet", "db": "udp"}, until='2023-11-15T00:00:01Z"')


def cases():
    for group in (write_cases, query_cases, udp_cases):
        yield from group()


def bearer(claims, secret="secret", algorithm="HS256"):
    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    head = encode(json.dumps({"alg": algorithm, "typ": "JWT"}).encode()) + b"." + encode(json.dumps(claims).encode())
    signature = hmac.new(secret.encode(), head, hashlib.sha256).digest()
    return {"Authorization": "Bearer " + (head + b"." + encode(signature)).decode()}


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()}


def user_cases():
    """A server that needs credentials."""
    for statement in ("SHOW DATABASES", "CREATE DATABASE d", "CREATE USER x WITH PASSWORD 'x'",
                      "CREATE USER root WITH PASSWORD 'r' WITH ALL PRIVILEGES",
                      "CREATE USER root2 WITH PASSWORD 'r' WITH ALL PRIVILEGES"):
        yield form("/query", {"q": statement})
    yield post("/write", "m v=1 1", {"db": "d"})
    root = {"u": "root", "p": "r"}
    for statement in ("CREATE DATABASE d", "CREATE DATABASE e", "CREATE USER reader WITH PASSWORD 'r'",
                      "CREATE USER writer WITH PASSWORD 'w'", "CREATE USER nobody WITH PASSWORD 'n'", "GRANT READ ON d TO reader",
                      "GRANT WRITE ON d TO writer", "SHOW USERS", "SHOW GRANTS FOR reader"):
        yield form("/query", dict(root, q=statement))
    yield post("/write", "m,t=a v=1 %d" % stamp(0), dict(root, db="d"))
    callers = [({}, {}), ({"u": "root"}, {}), ({"u": "root", "p": "bad"}, {}), ({"u": "none", "p": "x"}, {}), ({"u": "", "p": "x"}, {}),
               ({}, basic("root", "r")), ({}, basic("root", "x")), ({}, basic("", "")), ({}, {"Authorization": "Basic !!"}),
               ({}, {"Authorization": "Token root:r"}), ({}, {"Authorization": "Token root"}), ({}, {"Authorization": "Digest x"}),
               ({"u": "reader", "p": "r"}, {}), ({"u": "writer", "p": "w"}, {}), ({"u": "nobody", "p": "n"}, {}),
               ({}, bearer({"username": "root", "exp": FAR_S})), ({}, bearer({"username": "reader", "exp": FAR_S})),
               ({}, bearer({"username": "root", "exp": 1})), ({}, bearer({"username": "root"})), ({}, bearer({"exp": FAR_S})),
               ({}, bearer({"username": "root", "exp": FAR_S}, "other")), ({}, bearer({"username": "none", "exp": FAR_S})),
               ({}, bearer({"username": "root", "exp": FAR_S}, algorithm="none")), ({}, {"Authorization": "Bearer x"}),
               ({}, bearer({"username": "root", "exp": FAR_S, "nbf": FAR_S}))]
    for params, headers in callers:
        yield get("/query", dict(params, q="SELECT * FROM m", db="d"), headers)
        yield form("/query", dict(params, q="DROP DATABASE none"), headers)
        yield post("/write", "m,t=b v=2 %d" % stamp(60), dict(params, db="d"), headers)
    for params, headers in callers[:16:2]:
        yield get("/query", dict(params, q="SHOW DATABASES; SHOW USERS; SELECT * FROM e..m"), headers)
        yield post("/api/v2/write", "m,t=c v=3 %d" % stamp(90), dict(params, bucket="d"), headers)
        yield remote_write([(label("p"), [(DAY * 1000, 1.0)])], path="/api/v1/prom/write", params=dict(params, db="d"), headers=headers)
        yield from list(remote_read_cases("/api/v1/prom/read", dict(params, db="d")))[:1]
        yield get("/debug/vars", params, headers, rules=[durations, numbers, field("PID"), field("uptime")])
        yield get("/ping", params, headers)
    yield get("/api/v1/query", {"query": "m_v", "time": DAY})
    for statement in ("SET PASSWORD FOR reader = 'new'", "REVOKE ALL PRIVILEGES FROM root", "DROP USER reader", "DROP USER root", "SHOW USERS"):
        yield form("/query", dict(root, q=statement))


def token_cases():
    """A server that needs credentials and has no secret for tokens."""
    yield get("/query", {"q": "SHOW DATABASES"}, bearer({"username": "root", "exp": FAR_S}))
    yield form("/query", {"q": "CREATE USER root WITH PASSWORD 'r' WITH ALL PRIVILEGES"})
    yield get("/query", {"q": "SHOW DATABASES"}, bearer({"username": "root", "exp": FAR_S}))
    yield post("/write", "m v=1 1", {"db": "d"}, bearer({"username": "root", "exp": FAR_S}))
    yield post("/write", "m v=1 1", {"db": "d", "u": "root", "p": "r"})
    yield get("/query", {"q": "SHOW DATABASES", "u": "root", "p": "r"})
