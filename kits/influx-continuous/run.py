#!/usr/bin/env python3
"""Run continuous queries on a server and on a real InfluxDB 1.x, and compare the rows that they write.

Both get the same points, some seconds before their times, so that a busy machine delays no point beyond the
window it belongs to. The queries run by the clock. All measurements that they write are compared, row by row.
"""
import argparse
import atexit
import os
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from influx_server import Server, free_port  # noqa: E402

RESULTS = []
# Seconds of points, and from the last one to the end of all windows and their runs.
SPAN = 30
REST = 14
# Points are written this long before their times.
AHEAD = 6

# Name, RESAMPLE, statement. Each writes to a measurement of its own name.
# A run of InfluxDB that comes late computes several windows at once and fills those between them: widths of
# queries with fill() are longer than such delays.
QUERIES = [
    ("plain", "", "SELECT count(v), mean(v), sum(v) INTO {into} FROM m GROUP BY time(2s)"),
    ("by_tag", "", "SELECT max(v), min(v) INTO {into} FROM m GROUP BY time(2s), h"),
    ("by_all", "", "SELECT first(v), last(v) INTO {into} FROM m GROUP BY time(3s), *"),
    ("own_time", "", "SELECT count(v) INTO {into} FROM m WHERE time > now() - 3s GROUP BY time(4s)"),
    ("own_past", "", "SELECT sum(v) INTO {into} FROM m WHERE time < 1000s GROUP BY time(2s), h"),
    ("own_start", "", "SELECT count(v) INTO {into} FROM m WHERE time >= now() - 1s GROUP BY time(2s), h"),
    ("own_end", "", "SELECT count(v) INTO {into} FROM m WHERE time < now() - 10s GROUP BY time(2s), h"),
    ("own_future", "", "SELECT count(v) INTO {into} FROM m WHERE time > '2100-01-01' GROUP BY time(2s), h"),
    ("own_instant", "", "SELECT count(v) INTO {into} FROM m WHERE time = 0 GROUP BY time(2s), h"),
    ("own_both", "", "SELECT count(v) INTO {into} FROM m WHERE time > now() - 2s AND time < now() GROUP BY time(2s), h"),
    ("own_day", "", "SELECT count(v) INTO {into} FROM m WHERE time < now() - 1d AND h = 'b' GROUP BY time(2s), h"),
    ("own_all", "", "SELECT count(v) INTO {into} FROM m WHERE time > 0 GROUP BY time(2s), h"),
    ("own_tag", "", "SELECT count(v) INTO {into} FROM m WHERE h = 'a' AND time > now() - 1s GROUP BY time(2s), h"),
    ("tag_where", "", "SELECT count(v) INTO {into} FROM m WHERE h = 'a' AND time > now() - 1h GROUP BY time(2s)"),
    ("field_where", "", "SELECT count(v) INTO {into} FROM m WHERE v > 20 GROUP BY time(2s), h"),
    ("fill_zero", "", "SELECT count(v) INTO {into} FROM m GROUP BY time(4s), h fill(0)"),
    ("fill_previous", "", "SELECT mean(v) INTO {into} FROM m GROUP BY time(4s), h fill(previous)"),
    ("fill_none", "", "SELECT mean(v) INTO {into} FROM m GROUP BY time(1s), h fill(none)"),
    ("fill_linear", "", "SELECT max(v) INTO {into} FROM m GROUP BY time(4s), h fill(linear)"),
    ("fill_number", "", "SELECT count(v) INTO {into} FROM m GROUP BY time(4s), h fill(5)"),
    ("fill_null", "", "SELECT sum(v) INTO {into} FROM m GROUP BY time(4s), h fill(null)"),
    ("fill_count", "", "SELECT count(v), sum(v) INTO {into} FROM m GROUP BY time(4s), h fill(null)"),
    ("wildcard", "", "SELECT mean(*) INTO {into} FROM m GROUP BY time(2s), h"),
    ("regex", "", "SELECT count(v) INTO {into} FROM /^(m|other)$/ GROUP BY time(2s)"),
    ("shifted", "", "SELECT count(v) INTO {into} FROM m GROUP BY time(3s, 1s)"),
    ("texts", "", "SELECT last(s), count(s) INTO {into} FROM m GROUP BY time(2s), h"),
    ("computed", "", "SELECT mean(v) * 2 + 0.125 AS x INTO {into} FROM m GROUP BY time(2s)"),
    ("more_often", "RESAMPLE EVERY 1s", "SELECT count(v) INTO {into} FROM m GROUP BY time(4s)"),
    ("for_zero", "RESAMPLE FOR 6s", "SELECT count(v) INTO {into} FROM m GROUP BY time(2s), h fill(0)"),
    ("for_longer", "RESAMPLE FOR 6s", "SELECT count(v) INTO {into} FROM m GROUP BY time(2s), h"),
    ("every_for", "RESAMPLE EVERY 2s FOR 8s", "SELECT sum(v) INTO {into} FROM m GROUP BY time(4s)"),
    ("every_longer", "RESAMPLE EVERY 4s", "SELECT sum(v) INTO {into} FROM m GROUP BY time(2s)"),
    ("policy", "", "SELECT count(v) INTO d.p.{into} FROM m GROUP BY time(2s)"),
    ("same_name", "", "SELECT count(v) INTO d.q.:MEASUREMENT FROM /^(m|other)$/ GROUP BY time(2s)"),
    # Over the results of another query: EVERY computes its windows again when those are all there.
    ("chain", "RESAMPLE EVERY 2s FOR 8s", "SELECT sum(sum) INTO {into} FROM plain GROUP BY time(4s)"),
    ("subquery", "", "SELECT max(x) INTO {into} FROM (SELECT mean(v) AS x FROM m GROUP BY h) GROUP BY time(2s)"),
    ("transformed", "", "SELECT difference(max(v)) INTO {into} FROM m GROUP BY time(2s)"),
]


def chronolith(program, root, log):
    port = free_port()
    argv = [program, "serve", "--data-dir", os.path.join(root, "own"), "--http", "127.0.0.1:%d" % port]
    return Server(argv + ["--self-scrape", "off"], port, log)


def influxdb(program, root, log):
    port, home = free_port(), os.path.join(root, "influxdb")
    os.makedirs(home)
    path = os.path.join(home, "influxdb.conf")
    with open(path, "w") as config:
        config.write("""reporting-disabled = true
bind-address = "127.0.0.1:%d"
[meta]
dir = "%s/meta"
[data]
dir = "%s/data"
wal-dir = "%s/wal"
[http]
bind-address = "127.0.0.1:%d"
[continuous_queries]
enabled = true
run-interval = "1s"
[monitor]
store-enabled = false
""" % (free_port(), home, home, home, port))
    return Server([program, "run", "-config", path], port, log)


def points_of(second, rng):
    """Lines of the points within a second, in milliseconds; none in gaps."""
    if second % 12 in (7, 8):
        return []
    lines = []
    for host in "abc":
        # A tag with gaps of its own.
        if host == "c" and second % 10 >= 4:
            continue
        for _ in range(rng.randrange(1, 4)):
            at = second * 1000 + rng.randrange(1000)
            lines.append('m,h=%s v=%d,s="%s%d" %d' % (host, rng.randrange(40), host, rng.randrange(5), at))
    lines.append("other,h=a v=%d %d" % (rng.randrange(9), second * 1000 + 1))
    return lines


def rows(server, source):
    out = []
    for series in server.query("SELECT * FROM %s GROUP BY *" % source):
        for row in series["values"]:
            # InfluxDB lists tags of other retention policies, with empty values.
            tags = [tag for tag in sorted(series.get("tags", {}).items()) if tag[1]]
            out.append((series["name"], tags, series["columns"], row))
    return sorted(out, key=repr)


def compare(name, sources, own, other):
    """Compares what a query wrote on both servers; there has to be something."""
    ours, theirs = [row for s in sources for row in rows(own, s)], [row for s in sources for row in rows(other, s)]
    why = None
    if ours != theirs:
        missing = [row for row in theirs if row not in ours]
        added = [row for row in ours if row not in theirs]
        why = "%d rows here, %d in InfluxDB; missing %s, added %s" % (
            len(ours), len(theirs), missing[:3], added[:3])
    elif not ours:
        why = "no rows"
    RESULTS.append((name, len(ours), why))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the program chronolith")
    parser.add_argument("--influxd", default="influxd", help="the program influxd 1.x")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(prefix="continuous")
    atexit.register(shutil.rmtree, root, True)
    log = open(os.path.join(root, "log"), "w")
    servers = [chronolith(arguments.binary, root, log), influxdb(arguments.influxd, root, log)]
    rng = random.Random(arguments.seed)
    for server in servers:
        server.query("CREATE DATABASE d")
        server.query("CREATE RETENTION POLICY p ON d DURATION 2d REPLICATION 1")
        server.query("CREATE RETENTION POLICY q ON d DURATION 2d REPLICATION 1")
    # The first windows begin after the queries are there, on both; all widths divide 12.
    first = (int(time.time()) + AHEAD + 12) // 12 * 12
    seconds = iter(range(first, first + SPAN))
    written = first
    for _ in range(AHEAD):
        lines = points_of(next(seconds), rng)
        written += 1
        for server in servers:
            if lines:
                server.write(lines, precision="ms")
    for name, resample, statement in QUERIES:
        text = 'CREATE CONTINUOUS QUERY "%s" ON d %s BEGIN %s END' % (
            name, resample, statement.format(into='"%s"' % name))
        for server in servers:
            server.query(text)
    if time.time() >= first:
        raise SystemExit("the machine was too slow to create the queries before the first window")
    for second in seconds:
        time.sleep(max(0.0, second - AHEAD - time.time()))
        late = time.time() >= second
        lines = points_of(second, rng)
        if late:
            raise SystemExit("the machine was too slow to write a point before its time")
        for server in servers:
            if lines:
                server.write(lines, precision="ms")
    time.sleep(max(0.0, first + SPAN + REST - time.time()))
    for name, _, statement in QUERIES:
        sources = ['d.p."policy"'] if name == "policy" else ['"%s"' % name]
        if name == "same_name":
            sources = ["d.q.m", "d.q.other"]
        compare(name, sources, *servers)
    compare("points", ["m", "other"], *servers)
    for server in servers:
        server.stop()
    failed = 0
    for name, count, why in RESULTS:
        failed += why is not None
        print("%s %s: %s" % ("FAIL" if why else "ok  ", name, why or "%d equal rows" % count))
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
