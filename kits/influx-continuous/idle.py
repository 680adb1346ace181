#!/usr/bin/env python3
"""Count the runs of continuous queries that nothing new is written for, on a server and on a real InfluxDB 1.8.

Queries of one database that write to the store which they read started each other every second, without end,
after a late point and without one. Each set of queries has a server of its own of both kinds, gets the same
points and one late point, and then nothing: a query runs once per window in both.
"""
import argparse
import atexit
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from run import chronolith, influxdb  # noqa: E402

# Seconds of a window, from the late point to the first count, and between both counts: three windows.
WIDTH = 8
SETTLE = 12
IDLE = 24
SERIES = 20
HOURS = 20

BY = "GROUP BY time(%ds)" % WIDTH
# Name, and statements; {n} is the number of a statement.
SETS = [
    ("alone", ["SELECT mean(v) INTO r1 FROM m %s, *" % BY]),
    ("two", ["SELECT mean(v) INTO r1 FROM m %s, *" % BY, "SELECT max(v) INTO r2 FROM m %s, *" % BY]),
    ("six", ["SELECT %s(v) INTO r_%s FROM m %s, *" % (f, f, BY) for f in ("mean", "max", "min", "sum", "count", "last")]),
    ("chain", ["SELECT mean(v) AS v INTO r1 FROM m %s, *" % BY, "SELECT max(v) AS v INTO r2 FROM r1 %s, *" % BY]),
    ("cycle_of_two", ["SELECT mean(v) AS v INTO r1 FROM m %s, *" % BY, "SELECT mean(v) AS v INTO m FROM r1 %s, *" % BY]),
    ("cycle_of_three", ["SELECT mean(v) AS v INTO r1 FROM m %s, *" % BY, "SELECT mean(v) AS v INTO r2 FROM r1 %s, *" % BY,
                        "SELECT mean(v) AS v INTO m FROM r2 %s, *" % BY]),
    ("all_measurements", ["SELECT count(v) AS v INTO r1 FROM /.*/ %s, *" % BY, "SELECT max(v) AS v INTO r2 FROM /.*/ %s, *" % BY]),
    ("own_source", ["SELECT mean(v) AS v INTO m FROM m %s, *" % BY, "SELECT max(v) AS v INTO m FROM m %s, *" % BY]),
    ("policies", ["SELECT mean(v) AS v INTO d.p.:MEASUREMENT FROM m %s, *" % BY,
                  "SELECT max(v) AS v INTO d.autogen.:MEASUREMENT FROM d.p.m %s, *" % BY]),
    ("filled", ["SELECT count(v) INTO r1 FROM m %s, * fill(0)" % BY, "SELECT mean(v) INTO r2 FROM m %s, * fill(previous)" % BY]),
    ("wildcards", ["SELECT mean(*) INTO r1 FROM m %s, *" % BY, "SELECT max(*) INTO r2 FROM /^[mr]/ %s, *" % BY]),
    ("widths", ["SELECT mean(v) AS v INTO r1 FROM m GROUP BY time(4s), *", "SELECT mean(v) INTO r2 FROM r1 %s, *" % BY]),
    ("resample", ["RESAMPLE FOR 16s SELECT mean(v) INTO r1 FROM m %s, *" % BY, "SELECT max(v) INTO r2 FROM m %s, *" % BY]),
]


def own_runs(server):
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % server.port, timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("chronolith_continuous_query_runs_total "):
                return int(float(line.split()[1]))
    raise RuntimeError("no counter of runs")


def influxdb_runs(server):
    for series in server.query("SHOW STATS FOR 'cq'"):
        row = dict(zip(series["columns"], series["values"][0]))
        return row["queryOk"] + row["queryFail"]
    raise RuntimeError("no statistics of continuous queries")


def idle_runs(server, statements, runs, out, key):
    """Sets up a server and counts the runs within the idle time; an error is the result."""
    try:
        server.query("CREATE DATABASE d")
        server.query("CREATE RETENTION POLICY p ON d DURATION 2d REPLICATION 1")
        end = int(time.time())
        lines = ["m,h=h%d v=%d %d" % (h, (at // 60 + h) % 17, at)
                 for at in range(end - HOURS * 3600, end, 600) for h in range(SERIES)]
        server.write(lines, precision="s")
        for number, statement in enumerate(statements):
            resample, _, rest = statement.rpartition("SELECT")
            server.query("CREATE CONTINUOUS QUERY c%d ON d %sBEGIN SELECT%s END" % (number, resample, rest))
        time.sleep(WIDTH)
        server.write(["m,h=h0 v=7 %d" % (end - HOURS * 3600 + 1)], precision="s")
        time.sleep(SETTLE)
        before, started = runs(server), time.time()
        time.sleep(IDLE)
        out[key] = (runs(server) - before, time.time() - started)
    except Exception as error:  # noqa: BLE001
        out[key] = error


def verdict(statements, ours, theirs):
    """What is wrong with the counts; None if nothing is."""
    for one in (ours, theirs):
        if isinstance(one, Exception):
            return repr(one)
    # A window more or less per query lies within the time that a busy machine takes.
    allowed = sum(1 + 2 * max(0.0, ours[1] - IDLE) / WIDTH for _ in statements)
    if abs(ours[0] - theirs[0]) > allowed:
        return "%d runs of %d queries here, %d in InfluxDB" % (ours[0], len(statements), theirs[0])
    return "no run in InfluxDB" if theirs[0] == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the program chronolith")
    parser.add_argument("--influxd", default="influxd", help="the program influxd 1.8")
    parser.add_argument("--only", help="one set of queries")
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(prefix="idle")
    atexit.register(shutil.rmtree, root, True)
    log = open(os.path.join(root, "log"), "w")
    sets = [one for one in SETS if arguments.only in (None, one[0])]
    counts, threads, servers = {}, [], []
    for name, statements in sets:
        for start, program, runs in ((chronolith, arguments.binary, own_runs), (influxdb, arguments.influxd, influxdb_runs)):
            home = os.path.join(root, name)
            os.makedirs(home, exist_ok=True)
            server = start(program, home, log)
            servers.append(server)
            work = (server, statements, runs, counts, (name, start.__name__))
            threads.append(threading.Thread(target=idle_runs, args=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.stop()
    failed = 0
    for name, statements in sets:
        ours, theirs = counts[name, "chronolith"], counts[name, "influxdb"]
        why = verdict(statements, ours, theirs)
        failed += why is not None
        print("%s %s: %s" % ("FAIL" if why else "ok  ", name, why or "%d runs here, %d in InfluxDB" % (ours[0], theirs[0])))
    print("%d passed, %d failed" % (len(sets) - failed, failed))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
