#!/usr/bin/env python3
"""Import the data directory of a real InfluxDB 1.x and compare every point.

Fills influxd (TSM files of several generations, tombstones, WAL), stops it,
runs `chronolith import influx --data`, starts the server, and compares
`SELECT *` of every measurement of every retention policy, and the lists of
policies, continuous queries and users.
"""
import argparse
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from influx_server import Server, free_port  # noqa: E402

RESULTS = []
HOUR = 3_600_000_000_000
DAY = 24 * HOUR


def check(name, why):
    RESULTS.append((name, why is None, why))


def influxd(args, root, index, is_cold):
    """Starts influxd; `is_cold` makes it write its cache to TSM files at once."""
    port = free_port()
    conf = os.path.join(root, "influxdb.conf")
    with open(conf, "w") as out:
        out.write("""
reporting-disabled = true
bind-address = "127.0.0.1:%d"
[meta]
  dir = "%s/meta"
[data]
  dir = "%s/data"
  wal-dir = "%s/wal"
  index-version = "%s"
  query-log-enabled = false
  cache-snapshot-write-cold-duration = "%s"
[http]
  bind-address = "127.0.0.1:%d"
  log-enabled = false
[monitor]
  store-enabled = false
[logging]
  level = "error"
""" % (free_port(), root, root, root, index, "1s" if is_cold else "1h", port))
    log = open(os.path.join(root, "log"), "a")
    return Server([args.influxd, "run", "-config", conf], port, log)


def wait_for_tsm(root):
    """Waits until no WAL segment has entries."""
    for _ in range(300):
        if not any(os.path.getsize(f) for f in glob.glob(root + "/wal/*/*/*/*.wal")):
            return
        time.sleep(0.2)
    raise SystemExit("the cache is not written to TSM files")


def values(rng, at, has_unsigned):
    """One line's fields of all types that the server can write."""
    floats = [0.0, -0.0, 1e300, 5e-324, 0.1, -1.5, rng.random() * 1e6, float(at), 3.25]
    ints = [0, 1, -1, 2**63 - 1, -(2**63) + 1, at, rng.getrandbits(40), rng.randrange(-50, 50)]
    texts = ["", "a", "running", "x" * rng.randrange(300), 'q\\"uo\\\\te', "new\nline", "\u00e4\u20ac", "tab\t,= "]
    fields = []
    if rng.random() < 0.9:
        fields.append("f=%r" % rng.choice(floats))
    if rng.random() < 0.9:
        fields.append("i=%di" % rng.choice(ints))
    if rng.random() < 0.7:
        fields.append("b=%s" % rng.choice("tf"))
    if rng.random() < 0.6:
        fields.append('s="%s"' % rng.choice(texts))
    if has_unsigned and rng.random() < 0.7:
        fields.append("u=%du" % rng.choice([0, 1, 2**63, 2**64 - 1, at, rng.getrandbits(64)]))
    return ",".join(fields or ["n=1i"])


def fill_regular(server, count, t0):
    """Counters, gauges and constants at regular steps, so that blocks use every encoding."""
    for part in range(0, count, 2000):
        lines = []
        for at in range(part, min(part + 2000, count)):
            t = t0 + at * 10_000_000_000
            lines.append("cpu,host=a,B=up count=%di,usage=%f,ok=%s,state=\"s%d\" %d"
                         % (at * 7, at % 17 / 4, "t" if at % 100 else "f", at // 500, t))
            lines.append("cpu,host=b const=5i,jump=%di,flat=1.5 %d" % (2**62 * (at % 2), t + at % 3))
        server.write(lines)


def fill_random(server, rng, count, span, has_unsigned, rp=""):
    """Points in any order of time, with overwrites."""
    lines = []
    for at in range(count):
        t = rng.randrange(span[0], span[1])
        if rng.random() < 0.3:
            t -= t % HOUR
        lines.append("mixed,host=h%d,dc=%s %s %d" % (rng.randrange(5), rng.choice("xy"),
                                                   values(rng, at, has_unsigned), t))
    server.write(lines, rp)


NAMES = r"""
m\ a\,b,t\ x\,y\=z=v\ 1\,2\=3 f\ 1\,2\=3=1 1000
m\=eq,t=v f\"q=1 1001
m\"q,t=v f\\b=1 1002
m\\n,t\q=v\q f\n=1 1003
plain,a\b=c,B=x f=1 1004
c=comma,t=v f=1 1005
other f=1,g="x" 9223372036854775806
other f=2,g="y" -9223372036854775806
other f=3 -1
""".strip().split("\n")


def fill(args, root, index, rng):
    now = time.time_ns() // DAY * DAY
    server = influxd(args, root, index, True)
    server.query("CREATE DATABASE d; CREATE DATABASE empty WITH DURATION 3d NAME \"p q\"")
    server.query('CREATE RETENTION POLICY "hours" ON d DURATION 52w REPLICATION 1 SHARD DURATION 1h')
    server.query('CREATE RETENTION POLICY "years" ON d DURATION INF REPLICATION 1 SHARD DURATION 5200w')
    server.query('CREATE USER root WITH PASSWORD \'p\' WITH ALL PRIVILEGES; CREATE USER u WITH PASSWORD \'p\'')
    server.query("GRANT READ ON d TO u")
    server.query("CREATE CONTINUOUS QUERY cq ON d BEGIN SELECT mean(f) INTO x FROM mixed GROUP BY time(1m) END")
    fill_regular(server, args.points, now - 20 * DAY)
    server.write(NAMES)
    for rp, days in (("", 30), ("hours", 1), ("years", 4000)):
        fill_random(server, rng, 3000, (now - days * DAY, now), args.unsigned, rp)
    # A field of two types in two shards.
    server.write(["typed v=1.5 %d" % (now - 100 * DAY), "typed v=7i %d" % (now - 50 * DAY)])
    wait_for_tsm(root)
    # Second generation: overwrites of the first, and deletions of both.
    for rp, days in (("", 30), ("hours", 1), ("years", 4000)):
        fill_random(server, rng, 2000, (now - days * DAY, now), args.unsigned, rp)
    server.write(["gone,host=%d v=1 %d" % (at, now - at * DAY) for at in range(20)])
    wait_for_tsm(root)
    server.query("DELETE FROM mixed WHERE host = 'h1' AND time > %d AND time < %d" % (now - 9 * DAY, now - 5 * DAY))
    server.query("DELETE FROM cpu WHERE host = 'b' AND time >= %d AND time < %d" % (now - 20 * DAY, now - 20 * DAY + HOUR))
    server.query("DROP SERIES FROM mixed WHERE host = 'h4'; DROP MEASUREMENT gone")
    server.stop(signal.SIGTERM)
    server = influxd(args, root, index, False)
    # The WAL: writes, deletions of them and of files, writes after the deletions.
    for rp, days in (("", 30), ("hours", 1), ("years", 4000)):
        fill_random(server, rng, 1000, (now - days * DAY, now), args.unsigned, rp)
    server.query("DELETE FROM mixed WHERE host = 'h2' AND time > %d AND time < %d" % (now - 3 * DAY, now - DAY))
    server.query("DROP SERIES FROM mixed WHERE host = 'h3'")
    fill_random(server, rng, 500, (now - 2 * DAY, now), args.unsigned)
    return server


def dump(server):
    """All points: (policy, measurement, tags) -> {time: {field: value}}."""
    points = {}
    for (rp, *_) in server.query("SHOW RETENTION POLICIES ON d")[0]["values"]:
        for series in server.query("SHOW MEASUREMENTS ON d"):
            for (m,) in series["values"]:
                name = '"d"."%s"."%s"' % (rp, m.replace("\\", "\\\\").replace('"', '\\"'))
                for s in server.query("SELECT *::field FROM %s GROUP BY *" % name):
                    tags = tuple(sorted((k, v) for k, v in (s.get("tags") or {}).items() if v))
                    times = points.setdefault((rp, m, tags), {})
                    for row in s["values"]:
                        fields = {k: v for k, v in zip(s["columns"][1:], row[1:]) if v is not None}
                        if fields:
                            times.setdefault(row[0], {}).update(fields)
    return {key: times for key, times in points.items() if times}


def schema(server):
    """Policies, continuous queries and users."""
    def rows(q):
        return [(s.get("name"), sorted(map(tuple, s.get("values", [])))) for s in server.query(q)]
    users = [row for _, found in rows("SHOW USERS") for row in found]
    return {
        "databases": rows("SHOW DATABASES"),
        "policies": rows("SHOW RETENTION POLICIES ON d") + rows('SHOW RETENTION POLICIES ON "empty"'),
        "continuous queries": [row for row in rows("SHOW CONTINUOUS QUERIES") if row[1]],
        "users": users,
        "grants": rows("SHOW GRANTS FOR u"),
    }


def difference(want, got):
    """First difference of two dumps, or None."""
    for key in sorted(set(want) | set(got)):
        a, b = want.get(key, {}), got.get(key, {})
        if a != b:
            for t in sorted(set(a) | set(b)):
                if a.get(t) != b.get(t):
                    return "%s at %d: %s, imported %s" % (key, t, a.get(t), b.get(t))
    return None


def run(args, index, number):
    root = tempfile.mkdtemp(prefix="influx-import-")
    rng = random.Random(args.seed)
    name = "%s, %s" % (index, signal.Signals(number).name)
    server = fill(args, root, index, rng)
    want, want_schema = dump(server), schema(server)
    typed = [server.query("SELECT v::%s FROM typed" % kind) for kind in ("float", "integer")]
    server.stop(number)
    data_dir = os.path.join(root, "chronolith")
    argv = [args.chronolith, "import", "influx", "--data", root, "--data-dir", data_dir]
    done = subprocess.run(argv, capture_output=True, text=True)
    check(name + ": exit code", None if done.returncode == 0 else done.stdout + done.stderr)
    again = subprocess.run(argv, capture_output=True, text=True)
    check(name + ": a second import brings nothing",
          None if ": 0 points of 0 shards" in again.stdout else again.stdout + again.stderr)
    port = free_port()
    log = open(os.path.join(root, "chronolith.log"), "w")
    argv = [args.chronolith, "serve", "--data-dir", data_dir, "--http", "127.0.0.1:%d" % port]
    server = Server(argv, port, log)
    got, got_schema = dump(server), schema(server)
    count = sum(len(fields) for times in want.values() for fields in times.values())
    if index == "tsi1":
        # With tsi1, InfluxDB 1.6 does not find the points of a measurement with an escaped quote or equals sign.
        got = {key: times for key, times in got.items() if key in want or key[1] not in ('m"q', "m=eq")}
    check("%s: %d values of %d series" % (name, count, len(want)), difference(want, got))
    for what, rows in want_schema.items():
        same = rows == got_schema[what]
        check("%s: %s" % (name, what), None if same else "%s, imported %s" % (rows, got_schema[what]))
    got_typed = [server.query("SELECT v::%s FROM typed" % kind) for kind in ("float", "integer")]
    check(name + ": a field of two types", None if typed == got_typed else "%s, imported %s" % (typed, got_typed))
    server.stop(signal.SIGTERM)
    if args.keep:
        print("kept " + root)
    else:
        shutil.rmtree(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--influxd", default="/usr/bin/influxd")
    parser.add_argument("--chronolith", default="target/release/chronolith")
    parser.add_argument("--points", type=int, default=20000, help="points of each regular series")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unsigned", action="store_true", help="with unsigned integers: influxd-1.8 of `cargo xtask peers`")
    parser.add_argument("--keep", action="store_true", help="keep the directories")
    args = parser.parse_args()
    for index, number in (("inmem", signal.SIGKILL), ("tsi1", signal.SIGTERM)):
        run(args, index, number)
    for name, passed, why in RESULTS:
        if not passed:
            print("FAILED %s: %s" % (name, str(why)[:2000]))
    failed = sum(not passed for _, passed, _ in RESULTS)
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
