#!/usr/bin/env python3
"""Upload the databases of InfluxDB clients to a bucket and compare every answer.

A server gets points of every type by line protocol, with times in nanoseconds,
uploads them and removes its local copies. It is killed while it does so. Then
it is compared with a server that has the same points and no bucket: as it is,
started again on an empty data directory, and read-only; by InfluxQL and by
PromQL. A database that is dropped and created again has no old points.
"""
import argparse
import atexit
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from harness import BUCKET, START, Chronolith, canonical, check, free_port, get, report, s3_flags, start_gateway

KILLS = 4
HOURS = 6
FLAGS = ["--self-scrape", "0s", "--flush-delay", "1s", "--flush-small-window", "0"]
STATEMENTS = [
    "SHOW DATABASES", "SHOW RETENTION POLICIES ON metrics", "SHOW MEASUREMENTS ON metrics", "SHOW TAG KEYS ON metrics",
    "SHOW FIELD KEYS ON metrics", "SHOW SERIES ON metrics", "SHOW TAG VALUES ON metrics WITH KEY = host",
    "SELECT * FROM cpu", "SELECT * FROM metrics.long.disk", "SELECT count(*) FROM cpu GROUP BY host",
    "SELECT mean(load), max(total), last(state) FROM cpu WHERE time >= %d AND time < %d GROUP BY time(30m), host"
    % (START * 10 ** 9, (START + HOURS * 3600) * 10 ** 9),
    "SELECT state, up FROM cpu WHERE host = 'h1' AND time > %d ORDER BY time DESC LIMIT 20" % ((START + 3600) * 10 ** 9),
    "SELECT first(count), last(count) FROM cpu", "SELECT distinct(state) FROM cpu", "SHOW SHARDS",
]
EXPRESSIONS = ["cpu_load", "sum by (db, rp, host) (cpu_count)", "cpu_up", "{db=\"metrics\",rp=\"long\"}", "max(cpu_total)"]


def lines(seed):
    """Points of every type; times differ in the digits of nanoseconds."""
    rng = random.Random(seed)
    cpu, disk = [], []
    for host in range(5):
        for i in range(HOURS * 60):
            at = (START + i * 60) * 10 ** 9 + rng.randrange(10 ** 9)
            fields = "load=%r,count=%di,total=%du,up=%s,state=\"state %d, \\\"quoted\\\"\"" % (
                rng.random() * 100, rng.randrange(-2 ** 63, 2 ** 63), rng.randrange(2 ** 64), rng.choice("tf"), rng.randrange(9))
            cpu.append("cpu,host=h%d,zone=z%d %s %d" % (host, host % 2, fields, at))
            disk.append("disk,host=h%d free=%di %d" % (host, i * 7 - host, at))
    return cpu, disk


def request(base, path, data=None, method=None, **parameters):
    url = base + path + "?" + urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def statement(base, text, database="metrics"):
    return request(base, "/query", b"", "POST", q=text, db=database, epoch="ns")


def write(base, database, policy, points):
    for at in range(0, len(points), 500):
        body = "\n".join(points[at:at + 500]).encode()
        status, text = request(base, "/write", body, "POST", db=database, rp=policy)
        if status != 204:
            raise SystemExit("write: %d %s" % (status, text))


def fill(base):
    for text in ["CREATE DATABASE metrics", "CREATE RETENTION POLICY long ON metrics DURATION INF REPLICATION 1",
                 "CREATE DATABASE empty"]:
        check("fill: " + text, None if statement(base, text)[0] == 200 else "refused")
    cpu, disk = lines(5)
    write(base, "metrics", "autogen", cpu)
    write(base, "metrics", "long", disk)


def compare(label, want, found):
    for text in STATEMENTS:
        a, b = statement(want, text), statement(found, text)
        if text == "SHOW SHARDS":
            # Shard groups are those of the samples, whatever the blocks are.
            a, b = ((status, sorted(re.findall(r"\d{4}-\d\d-\d\dT[^\"]*", body))) for status, body in (a, b))
        check("%s: %s" % (label, text), None if a == b else "%.300s instead of %.300s" % (b, a))
    day = {"start": START, "end": START + HOURS * 3600, "step": 300}
    for text in EXPRESSIONS:
        a = get(want, "/api/v1/query_range", query=text, **day)
        b = get(found, "/api/v1/query_range", query=text, **day)
        same = a[0] == b[0] and canonical(a[1].get("data")) == canonical(b[1].get("data"))
        check("%s: %s" % (label, text), None if same else "%.300s instead of %.300s" % (b[1], a[1]))
    for path in ["/api/v1/labels", "/api/v1/label/__name__/values", "/api/v1/label/db/values"]:
        a, b = get(want, path), get(found, path)
        check("%s: %s" % (label, path), None if a[1] == b[1] and a[0] == b[0] else "%.300s instead of %.300s" % (b[1], a[1]))


def local_blocks(data):
    found = []
    tenants = os.path.join(data, "tenants")
    for tenant in os.listdir(tenants) if os.path.isdir(tenants) else []:
        found += [name for name in os.listdir(os.path.join(tenants, tenant)) if len(name) == 26]
    return found


def wait_until_moved(base, data):
    """Blocks were uploaded, and none is left on the local disk."""
    for _ in range(600):
        text = urllib.request.urlopen(base + "/metrics", timeout=10).read().decode()
        moved = re.search(r"^chronolith_bucket_removed_local_copies_total (\S+)$", text, re.M)
        waiting = re.search(r"^chronolith_bucket_upload_waiting_blocks (\S+)$", text, re.M)
        if moved and waiting and float(moved.group(1)) > 0 and float(waiting.group(1)) == 0 and not local_blocks(data):
            return None
        time.sleep(0.2)
    return "still local after 120 s: %s" % local_blocks(data)


def names(base):
    status, body = statement(base, "SHOW DATABASES", "")
    if status != 200:
        return None
    series = json.loads(body)["results"][0]["series"][0]
    return [row[0] for row in series.get("values", [])]


def wait_until(what, found):
    for _ in range(150):
        if found():
            return None
        time.sleep(0.2)
    return what + " after 30 s"


def databases(arguments, label, flags, work, log):
    data, empty, own_data = (os.path.join(work, label, name) for name in ("db-data", "db-empty", "db-own"))
    own = Chronolith(arguments.server, ["--data-dir", own_data] + FLAGS, log)
    fill(own.base)
    writing = flags + FLAGS + ["--bucket.local-retention", "1s", "--bucket.poll", "1s"]
    server = Chronolith(arguments.server, ["--data-dir", data] + writing, log)
    fill(server.base)
    rng = random.Random(7)
    for _ in range(KILLS):
        time.sleep(0.5 + rng.random() * 2)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server = Chronolith(arguments.server, ["--data-dir", data] + writing, log)
    compare(label + ", while uploading", own.base, server.base)
    check(label + ": all blocks are moved", wait_until_moved(server.base, data))
    compare(label + ", uploaded", own.base, server.base)
    reader = Chronolith(arguments.server, ["--read-only", "--bucket.poll", "1s"] + flags, log)
    compare(label + ", read-only", own.base, reader.base)
    for text in ["CREATE DATABASE x", "DROP DATABASE metrics", "SELECT load INTO y FROM cpu", "DROP MEASUREMENT cpu"]:
        status, body = statement(reader.base, text)
        check("%s: read-only refuses %s" % (label, text), None if status == 405 and "read-only" in body else (status, body))
    for one in (server, own):
        status, body = statement(one.base, "DELETE FROM cpu WHERE host = 'h2' AND time < %d" % ((START + 2 * 3600) * 10 ** 9))
        check(label + ": DELETE", None if status == 200 and "error" not in body else (status, body))
    compare(label + ", deleted", own.base, server.base)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    server = Chronolith(arguments.server, ["--data-dir", empty] + writing, log)
    compare(label + ", empty data directory", own.base, server.base)
    time.sleep(2)
    names(reader.base)
    time.sleep(1)
    compare(label + ", read-only after the deletion", own.base, reader.base)
    for text in ["DROP DATABASE metrics", "CREATE DATABASE metrics"]:
        statement(server.base, text)
    count = statement(server.base, "SELECT count(*) FROM cpu")
    check(label + ": a database created again is empty", None if "series" not in count[1] else count)
    gone = lambda: "series" not in statement(reader.base, "SELECT count(*) FROM cpu")[1]
    check(label + ": readers see the drop", wait_until("old points", gone))
    check(label + ": names", None if sorted(names(reader.base)) == ["empty", "metrics"] else names(reader.base))
    for one in (server, reader, own):
        one.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="binary of Chronolith")
    parser.add_argument("--versitygw", help="binary of versitygw; without it the S3 part is not run")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bucket-databases-")
    atexit.register(shutil.rmtree, work, True)
    log = open(os.path.join(work, "log"), "w")
    directory = os.path.join(work, "bucket")
    os.mkdir(directory)
    databases(arguments, "directory", ["--bucket", "file://" + directory], work, log)
    if arguments.versitygw:
        arguments.s3_port, arguments.s3_root = free_port(), os.path.join(work, "s3")
        os.makedirs(os.path.join(arguments.s3_root, BUCKET))
        start_gateway(arguments, log)
        databases(arguments, "s3", s3_flags(arguments), work, log)
    else:
        print("not run: S3 (no --versitygw)")
    report(log)


if __name__ == "__main__":
    main()
