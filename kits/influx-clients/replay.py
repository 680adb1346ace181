#!/usr/bin/env python3
"""Replay what clients of InfluxDB 1.x send, and check the answers they rely on.

Telegraf, Grafana and Chronograf are replayed as HTTP calls; the `influx` command
line and the client libraries from PyPI run for real where they are installed.
"""
import argparse
import gzip
import importlib.util
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from tsdbwire import STRONG, Client  # noqa: E402

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain; charset=utf-8", "User-Agent": "Telegraf/1.32.0"}
RESULTS = []
# Databases of a cluster reach other processes with their next look at the bucket.
WAIT_S = 10


def check(name, fn):
    try:
        fn()
        RESULTS.append((name, ""))
    except Exception as e:  # every defect of an answer is a failed check
        RESULTS.append((name, repr(e)[:400]))


def skip(name, why):
    print("skip %s -- %s" % (name, why))


def enc(p):
    return urllib.parse.urlencode(p, doseq=True)


def equal(found, want):
    assert found == want, "found %r, want %r" % (found, want)


class Server:
    """A server, or two processes of a cluster: `c` takes writes and changes, `r` answers queries."""

    def __init__(self, base, read):
        self.is_cluster = read != base
        self.base, self.read = base, read
        self.c = Client(base)
        self.r = Client(read, STRONG) if self.is_cluster else self.c

    def form(self, **p):
        """POST /query with a form, as Telegraf and the libraries send statements."""
        is_change = p["q"].split(" ", 1)[0] in ("CREATE", "DROP", "ALTER")
        return (self.c if is_change else self.r).request("POST", "/query", enc(p), FORM)

    def settle(self):
        """Waits until the process for queries has the databases of the other one, and its points."""
        end = time.time() + WAIT_S
        while self.is_cluster:
            shown = [self.databases(client) for client in (self.c, self.r)]
            if shown[0] == shown[1] and self.r.request("GET", "/api/v1/query?query=up")[0] == 200:
                return
            assert time.time() < end, shown
            time.sleep(0.1)

    def databases(self, client):
        def show(q):
            result = json.loads(client.request("POST", "/query", enc({"q": q}), FORM)[2])["results"][0]
            return [values for series in result.get("series", []) for values in series.get("values", [])]
        return {name: show('SHOW RETENTION POLICIES ON "%s"' % name) for name, in show("SHOW DATABASES")}

    def results(self, **p):
        st, _, body = self.form(**p)
        assert st == 200, (st, body[:200])
        return json.loads(body)["results"]

    def rows(self, q, db="", **p):
        r = self.results(q=q, db=db, **p)[0]
        assert "error" not in r, r
        return [s["values"] for s in r.get("series", [])]

    def write(self, path, body, headers=TEXT):
        return self.c.request("POST", path, body, headers)


def error_of(answer, want_status):
    """The error of a refused write: JSON, in the header too, as Telegraf reads it."""
    st, headers, body = answer
    equal(st, want_status)
    assert "application/json" in headers["Content-Type"], dict(headers)
    text = json.loads(body)["error"]
    assert headers.get("X-Influxdb-Error"), "no header with the error"
    return text


def telegraf(s):
    def create():
        st, headers, body = s.form(q='CREATE DATABASE "kit_telegraf"')
        equal((st, json.loads(body)), (200, {"results": [{"statement_id": 0}]}))
        assert headers.get("X-Influxdb-Version"), "no version"

    def gzipped():
        body = "\n".join("cpu,cpu=cpu%d,host=a usage_idle=%d.5,up=t,n=%di,state=\"on, off\" 17000000%02d000000001"
                         % (i % 2, i, i, i) for i in range(60)) + "\n"
        headers = dict(TEXT, **{"Content-Encoding": "gzip"})
        st, _, out = s.write("/write?consistency=any&db=kit_telegraf", gzip.compress(body.encode()), headers)
        equal((st, out), (204, b""))
        s.settle()
        equal(s.rows("SELECT count(usage_idle), sum(n) FROM cpu", "kit_telegraf", epoch="ns"), [[[0, 60, 1770]]])
        equal(s.rows('SELECT last("state") FROM cpu', "kit_telegraf", epoch="ns"), [[[1700000059000000001, "on, off"]]])

    def missing():
        # Telegraf creates the database when it reads this text, and sends the points again.
        text = error_of(s.write("/write?db=kit_none", "m v=1"), 404)
        assert "database not found" in text, text

    def policy():
        text = error_of(s.write("/write?db=kit_telegraf&rp=none", "m v=1"), 500)
        assert "retention policy not found" in text, text

    def dropped():
        text = error_of(s.write("/write?db=kit_telegraf", "m v=1\nbad"), 400)
        assert "partial write" in text and "unable to parse" in text, text
        text = error_of(s.write("/write?db=kit_telegraf", "bad"), 400)
        assert text.startswith("unable to parse 'bad': "), text
        if s.is_cluster:
            # Types of fields are known to owners alone, which count the point.
            equal(s.write("/write?db=kit_telegraf", "m v=1i")[0], 204)
            equal(s.rows("SELECT count(v) FROM m", "kit_telegraf", epoch="ns"), [[[0, 1]]])
        else:
            text = error_of(s.write("/write?db=kit_telegraf", "m v=1i"), 400)
            assert "partial write: field type conflict: " in text and text.endswith("dropped=1"), text
        s.results(q='CREATE RETENTION POLICY "short" ON "kit_telegraf" DURATION 1h REPLICATION 1')
        text = error_of(s.write("/write?db=kit_telegraf&rp=short", "m v=1 1"), 400)
        assert "points beyond retention policy" in text, text

    def v2():
        path = "/api/v2/write?bucket=kit_telegraf%2Fautogen&org=any"
        headers = dict(TEXT, Authorization="Token any:thing")
        headers["Content-Encoding"] = "gzip"
        st, _, out = s.write(path, gzip.compress(b"disk,path=/ used=7i 1700000000000000000\n"), headers)
        equal((st, out), (204, b""))
        equal(s.rows("SELECT used FROM disk", "kit_telegraf", epoch="s"), [[[1700000000, 7]]])
        st, _, out = s.write("/api/v2/write?bucket=kit_none&org=any", "m v=1", headers={})
        equal(st, 404)
        assert "database not found" in json.loads(out)["error"], out

    def influxdb_input():
        st, _, out = s.r.request("GET", "/debug/vars")
        if s.is_cluster:
            # Statistics of a store, which neither a gateway nor a query node has.
            return equal(st, 405)
        equal(st, 200)
        assert any(v.get("name") == "database" for v in json.loads(out).values()), out[:200]

    check("telegraf: CREATE DATABASE by form", create)
    check("telegraf: gzip body, ns times, all kinds", gzipped)
    check("telegraf: 404 with `database not found`", missing)
    check("telegraf: 500 with `retention policy not found`", policy)
    check("telegraf: 400 with the texts it looks for", dropped)
    check("telegraf: outputs.influxdb_v2", v2)
    check("telegraf: inputs.influxdb reads /debug/vars", influxdb_input)


def grafana(s):
    db = "kit_grafana"
    s.results(q='CREATE DATABASE "%s"' % db)
    body = "".join("cpu,host=%s,dc=x usage=%d,load=%di %d\nmem,host=%s free=%d %d\n" % (h, i, i, 1700000000 + i * 10, h, i, 1700000000 + i * 10)
                   for h in "ab" for i in range(360))
    equal(s.write("/write?db=%s&precision=s" % db, body)[0], 204)
    s.settle()

    def get(q, **p):
        st, _, out = s.r.request("GET", "/query?" + enc(dict(p, db=db, q=q, epoch="ms")))
        assert st == 200, (st, out[:200])
        r = json.loads(out)["results"][0]
        assert "error" not in r, r
        return r.get("series", [])

    def values(q, **p):
        return [v[0] for v in get(q, **p)[0]["values"]]

    def metadata():
        equal(values("SHOW measurements"), ["cpu", "mem"])
        equal(values('SHOW RETENTION POLICIES on "%s"' % db), ["autogen"])
        equal(values("SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)CP/ LIMIT 100"), ["cpu"])
        equal(values("SHOW MEASUREMENTS WHERE \"dc\" = 'x' LIMIT 100"), ["cpu"])
        equal(get('SHOW FIELD KEYS FROM "autogen"."cpu"')[0]["values"], [["load", "integer"], ["usage", "float"]])
        equal(values('SHOW TAG KEYS FROM "cpu"'), ["dc", "host"])
        equal(values("SHOW TAG KEYS FROM \"autogen\".\"cpu\" WHERE \"host\" = 'a'"), ["dc", "host"])
        q = 'SHOW TAG VALUES FROM "cpu" WITH KEY = "host" WHERE "dc" = \'x\' AND "host" =~ /^(a|c)$/'
        equal(get(q)[0]["values"], [["host", "a"]])

    window = "time >= 1700000000000ms and time <= 1700003590000ms"

    def data():
        q = ('SELECT mean("usage") AS "avg", max("load") FROM "autogen"."cpu" WHERE ("host"::tag = \'a\' AND "dc" =~ /^x$/) AND '
             '%s GROUP BY time(10m), "host"::tag fill(null) ORDER BY time DESC limit 3 tz(\'Europe/Berlin\')' % window)
        for series in (get(q), s.results(db=db, epoch="ms", q=q)[0]["series"]):
            equal([x["tags"] for x in series], [{"host": "a"}])
            equal(series[0]["columns"], ["time", "avg", "max"])
            equal([v[0] for v in series[0]["values"]], [1700003400000, 1700002800000, 1700002200000])
            equal(series[0]["values"][1][1:], [309.5, 339])

    def regex_from():
        q = 'SELECT last(*) FROM /^(cpu|mem)$/ WHERE %s GROUP BY "host"' % window
        equal(sorted((x["name"], x["tags"]["host"]) for x in get(q)), [("cpu", "a"), ("cpu", "b"), ("mem", "a"), ("mem", "b")])
        equal(len(get('SELECT count("free") FROM /mem/ WHERE %s GROUP BY *' % window)), 2)

    def functions():
        # Functions of the builder that have one field.
        for f in ["count(%s)", "distinct(%s)", "integral(%s)", "mean(%s)", "median(%s)", "mode(%s)", "sum(%s)", "bottom(%s, 3)",
                  "first(%s)", "last(%s)", "max(%s)", "min(%s)", "percentile(%s, 95)", "top(%s, 3)", "spread(%s)", "stddev(%s)"]:
            q = "SELECT %s FROM \"cpu\" WHERE %s GROUP BY time(10m) fill(none)" % (f % '"usage"', window)
            assert get(q)[0]["values"], q
        for f in ["derivative(%s, 10s)", "non_negative_derivative(%s, 10s)", "difference(%s)", "non_negative_difference(%s)",
                  "moving_average(%s, 2)", "cumulative_sum(%s)", "elapsed(%s, 1s)", "holt_winters(%s, 3, 0)",
                  "holt_winters_with_fit(%s, 3, 0)"]:
            inner = 'mean("usage")' if "elapsed" not in f else "last(\"usage\")"
            q = 'SELECT %s FROM "cpu" WHERE %s GROUP BY time(10m) fill(previous)' % (f % inner, window)
            assert get(q)[0]["values"], q
        equal(get('SELECT mean("usage") / 100 AS "part" FROM "cpu" WHERE %s' % window)[0]["columns"], ["time", "part"])

    check("grafana: metadata statements", metadata)
    check("grafana: panel query with ::tag, fill, tz(), by GET and form", data)
    check("grafana: regex measurements", regex_from)
    check("grafana: functions of the query builder", functions)


def chronograf(s):
    db = "kit_grafana"

    def joined():
        text = 'SHOW RETENTION POLICIES ON "%s"; SHOW RETENTION POLICIES ON "kit_telegraf"; SHOW DATABASES' % db
        s.settle()
        st, _, out = s.r.request("GET", "/query?" + enc(dict(q=text)))
        equal(st, 200)
        results = json.loads(out)["results"]
        equal([r["statement_id"] for r in results], [0, 1, 2])
        equal(results[0]["series"][0]["columns"], ["name", "duration", "shardGroupDuration", "replicaN", "default"])
        equal([v[0] for v in results[1]["series"][0]["values"]], ["autogen", "short"])
        text = 'SHOW TAG KEYS FROM "autogen"."cpu"; SHOW TAG VALUES FROM "autogen"."cpu" WITH KEY IN ("dc", "host"); SHOW FIELD KEYS FROM "autogen"."cpu"'
        results = s.results(q=text, db=db)
        equal(results[1]["series"][0]["values"], [["dc", "x"], ["host", "a"], ["host", "b"]])
        equal(len(results), 3)

    def queries():
        series = s.results(q="SHOW QUERIES")[0]["series"][0]
        equal(series["columns"][:4], ["qid", "query", "database", "duration"])
        assert "SHOW QUERIES" in [v[1] for v in series["values"]], series
        error = s.results(q="KILL QUERY 999999")[0]["error"]
        assert "no such query id: 999999" in error, error

    check("chronograf: SHOW statements joined by `;`", joined)
    check("chronograf: SHOW QUERIES, KILL QUERY", queries)


def influx_cli(s):
    if not shutil.which("influx"):
        return skip("influx: command line", "no `influx` (Debian package influxdb-client)")
    def of(base):
        url = urllib.parse.urlsplit(base)
        return ["influx", "-host", url.hostname, "-port", str(url.port)]

    def influx(*args, base=s.base):
        home = os.environ.get("TMPDIR", tempfile.gettempdir())
        done = subprocess.run([*of(base), *args], text=True, capture_output=True, timeout=20, env=dict(os.environ, HOME=home))
        assert done.returncode == 0, done
        return done.stdout

    def execute():
        influx("-execute", "CREATE DATABASE kit_cli")
        s.settle()
        assert "kit_cli" in influx("-execute", "SHOW DATABASES", base=s.read)
        for i in range(3):
            equal(influx("-database", "kit_cli", "-execute", "INSERT m,t=x v=%d,n=%di %d" % (i, i, 1000 + i)), "")
        s.settle()
        out = influx("-database", "kit_cli", "-format", "csv", "-execute", "SELECT * FROM m", base=s.read)
        equal(out.split(), ["name,time,n,t,v", "m,1000,0,x,0", "m,1001,1,x,1", "m,1002,2,x,2"])
        out = json.loads(influx("-database", "kit_cli", "-format", "json", "-precision", "rfc3339", "-execute", "SELECT v FROM m LIMIT 1", base=s.read))
        equal(out["results"][0]["series"][0]["values"], [["1970-01-01T00:00:00.000001Z", 0]])

    def session():
        # `use` asks SHOW DATABASES, `chunk size` switches to chunks of it. Only a terminal gets a session.
        text = "use kit_cli\nprecision ns\nchunked\nchunk size 2\nformat csv\nSELECT v FROM m\nuse kit_missing\nexit\n"
        ours, theirs = pty.openpty()
        with tempfile.TemporaryDirectory() as home:
            process = subprocess.Popen(of(s.read), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       env=dict(os.environ, HOME=home, TERM="dumb"))
            os.close(theirs)
            os.write(ours, text.encode())
            try:
                out = process.communicate(timeout=20)[0]
            finally:
                process.kill()
                os.close(ours)
        assert "Using database kit_cli" in out, out
        for row in ["m,1000,0", "m,1001,1", "m,1002,2"]:
            assert row in out, out
        assert "kit_missing" in out, out

    def refused():
        done = subprocess.run([*of(s.base), "-database", "kit_cli", "-execute", "INSERT bad"], text=True, capture_output=True, timeout=20)
        assert "unable to parse 'bad': missing fields" in done.stdout + done.stderr, done

    def imported():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# DDL\nCREATE DATABASE kit_import\n# DML\n# CONTEXT-DATABASE: kit_import\n# CONTEXT-RETENTION-POLICY: autogen\n")
            file.writelines("cpu,host=h%d v=%d %d\n" % (i % 10, i, i + 1) for i in range(12000))
            file.flush()
            influx("-import", "-path", file.name, "-precision", "ns")
        s.settle()
        equal(s.rows("SELECT count(v) FROM cpu", "kit_import", epoch="ns"), [[[0, 12000]]])

    check("influx: -execute, insert, csv and json", execute)
    check("influx: session with use, chunks, precision", session)
    check("influx: text of a refused insert", refused)
    check("influx: -import", imported)


def have(*names):
    return all(importlib.util.find_spec(name) for name in names)


def influxdb_library(s):
    if not have("influxdb"):
        return skip("influxdb: Python library", "not installed")
    from influxdb import InfluxDBClient

    def connect(base, library=InfluxDBClient, **options):
        url = urllib.parse.urlsplit(base)
        return library(host=url.hostname, port=url.port, database="kit_python", **options)
    writer, client = connect(s.base), connect(s.read)

    def write():
        equal(writer.ping(), writer._session.get(s.base + "/ping").headers["X-Influxdb-Version"])
        writer.create_database("kit_python")
        points = [{"measurement": "m", "tags": {"t": "x y"}, "time": 1000 + i, "fields": {"f": i / 2, "n": i, "s": "a\"b", "b": True}}
                  for i in range(25)]
        assert writer.write_points(points, batch_size=10)
        s.settle()
        assert {"name": "kit_python"} in client.get_list_database()
        equal([p["name"] for p in client.get_list_retention_policies("kit_python")], ["autogen"])

    def read():
        # The library asks for msgpack.
        result = list(client.query("SELECT * FROM m", epoch="ns").get_points())
        equal(len(result), 25)
        equal(result[3], {"time": 1003, "b": True, "f": 1.5, "n": 3, "s": "a\"b", "t": "x y"})
        result = client.query("SELECT f FROM m WHERE t = $tag LIMIT 1", bind_params={"tag": "x y"})
        equal(list(result.get_points()), [{"time": "1970-01-01T00:00:00.000001Z", "f": 0}])

    def chunked():
        # The library reads chunks as JSON only.
        json_client = connect(s.read, headers={"Accept": "application/json"})
        result = json_client.query("SELECT n FROM m", chunked=True, chunk_size=10, epoch="ns")
        parts = [result] if hasattr(result, "get_points") else list(result)
        rows = [row for part in parts for row in part.get_points()]
        equal([row["n"] for row in rows], list(range(25)))

    def errors():
        from influxdb.exceptions import InfluxDBClientError
        try:
            client.query("SELECT")
        except InfluxDBClientError as e:
            equal(e.code, 400)
            assert "error parsing query" in str(e), e
        else:
            raise AssertionError("no error")

    check("influxdb: write_points", write)
    check("influxdb: query by msgpack, bound parameters", read)
    check("influxdb: chunked query", chunked)
    check("influxdb: errors", errors)
    if not have("pandas"):
        return skip("influxdb: data frames", "no pandas")

    def frames():
        import pandas
        from influxdb import DataFrameClient
        index = pandas.date_range("2023-11-14T22:13:20", periods=50, freq="1s", tz="UTC")
        frame = pandas.DataFrame({"f": [i * 0.5 for i in range(50)], "n": range(50)}, index=index)
        assert connect(s.base, DataFrameClient).write_points(frame, "frame", tags={"t": "x"})
        s.settle()
        out = connect(s.read, DataFrameClient).query("SELECT f, n FROM frame")["frame"]
        equal((list(out.columns), len(out), out["n"].sum(), out["f"].iloc[3]), (["f", "n"], 50, 1225, 1.5))
        equal(str(out.index[1]), "2023-11-14 22:13:21+00:00")

    check("influxdb: data frames", frames)


def influxdb_client_library(s):
    if not have("influxdb_client"):
        return skip("influxdb-client: Python library", "not installed")
    from influxdb_client import InfluxDBClient, Point, WriteOptions
    from influxdb_client.client.write_api import SYNCHRONOUS

    def write():
        s.results(q="CREATE DATABASE kit_v2")
        with InfluxDBClient(url=s.base, token="user:password", org="-", enable_gzip=True) as client:
            assert client.ping()
            with client.write_api(write_options=SYNCHRONOUS) as api:
                api.write("kit_v2/autogen", record=[Point("m").tag("t", "x").field("v", i).time(i) for i in range(20)])
            with client.write_api(write_options=WriteOptions(batch_size=7, flush_interval=100)) as api:
                for i in range(20, 40):
                    api.write("kit_v2", record="m,t=x v=%di %d" % (i, i))
        s.settle()
        equal(s.rows("SELECT count(v), sum(v) FROM m", "kit_v2", epoch="ns"), [[[0, 40, 780]]])

    check("influxdb-client: write, gzip, in batches", write)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("base", help="http://host:port of the server")
    p.add_argument("--read", metavar="URL", help="server to query, if writes go to another process of a cluster")
    a = p.parse_args()
    s = Server(a.base, a.read or a.base)
    for db in ["telegraf", "grafana", "cli", "import", "python", "v2"]:
        s.results(q='DROP DATABASE "kit_%s"' % db)
    telegraf(s)
    grafana(s)
    chronograf(s)
    influx_cli(s)
    influxdb_library(s)
    influxdb_client_library(s)
    for name, why in RESULTS:
        print("%s %s%s" % ("FAIL" if why else "ok  ", name, "  -- " + why if why else ""))
    bad = sum(bool(why) for _, why in RESULTS)
    print("%d passed, %d failed" % (len(RESULTS) - bad, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    start = time.monotonic()
    code = main()
    print("took %.1f s" % (time.monotonic() - start), file=sys.stderr)
    sys.exit(code)
