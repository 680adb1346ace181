#!/usr/bin/env python3
"""Read blocks of Prometheus from a bucket and compare every answer.

Makes blocks with promtool and serves them by
`chronolith serve --bucket URL --read-only` from a bucket in Mimir's layout:
a local directory, and an S3 server (versitygw) if one is given. Answers are
compared with those of a Chronolith that has the same blocks in its data
directory, and where all versions of Prometheus agree, with Prometheus's.
Then a block is added while the server runs, and the S3 server is killed.
"""
import argparse
import atexit
import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request

from harness import (BUCKET, HOURS, START, Chronolith, blocks_of, check, compare, free_port, get, make_blocks, report,
                    s3_flags, start, start_gateway, wait_for)


def refused_writes(reader):
    for path in ["/api/v1/write", "/write?db=a"]:
        try:
            status = urllib.request.urlopen(urllib.request.Request(reader.base + path, b"x v=1")).status
        except urllib.error.HTTPError as error:
            status = error.code
        check("POST %s is refused" % path, None if status in (405, 415) else "status %d" % status)


def new_block(arguments, reader, work, bucket):
    """A block that appears in the bucket is seen by a later query."""
    directory = os.path.join(work, "later")
    make_blocks(arguments.promtool, directory, (HOURS + 1, HOURS + 3), 5)
    for block in blocks_of(directory):
        # meta.json last, as an upload does it.
        shutil.copytree(os.path.join(directory, block), os.path.join(bucket, block), ignore=shutil.ignore_patterns("meta.json"))
        shutil.copy(os.path.join(directory, block, "meta.json"), os.path.join(bucket, block, "meta.json"))
    found = 0
    for _ in range(100):
        _, body, _ = get(reader.base, "/api/v1/query", query="count(queue)", time=START + (HOURS + 2) * 3600)
        found = len(body["data"]["result"])
        if found:
            break
        time.sleep(0.1)
    check("a block that is added is seen", None if found else "not seen within 10 s")


def thanos(arguments, own, data, work, log):
    """The blocks in Thanos's layout, whose series get external labels; one that is marked, one that is downsampled."""
    bucket = os.path.join(work, "thanos")
    labels = {"cluster": "c1", "replica": "r-0", "__tenant__": "hidden"}
    for number, ulid in enumerate(blocks_of(data) * 2):
        copies = number // len(blocks_of(data))
        name = ulid if not copies else ulid[:-1] + ("0" if ulid[-1] != "0" else "1")
        target = os.path.join(bucket, name)
        shutil.copytree(os.path.join(data, ulid), target)
        meta = json.load(open(os.path.join(target, "meta.json")))
        resolution = 300000 if copies and number % 2 else 0
        meta.update(ulid=name, thanos={"labels": labels if not copies else dict(labels, cluster="gone"),
                                       "downsample": {"resolution": resolution}, "source": "sidecar"})
        json.dump(meta, open(os.path.join(target, "meta.json"), "w"))
        if copies and not resolution:
            json.dump({"id": name, "version": 1}, open(os.path.join(target, "deletion-mark.json"), "w"))
    flags = ["--read-only", "--bucket.layout", "thanos", "--bucket", "file://" + bucket]
    reader = Chronolith(arguments.server, flags, log)
    compare("thanos", own.base, reader.base, added=("cluster", "replica"))
    at, all_time = {"time": START + 13 * 3600 + 31}, {"start": START, "end": START + HOURS * 3600}
    for text, want in [("count by (cluster, replica) (queue)", [{"cluster": "c1", "replica": "r-0"}]),
                       ("count(queue{cluster=\"c1\",replica=~\"r.*\"})", [{}]), ("count(queue{cluster=\"gone\"})", []),
                       ("count(queue{cluster!=\"c1\"})", []), ("count(queue{cluster=\"\"})", [])]:
        _, body, _ = get(reader.base, "/api/v1/query", query=text, **at)
        found = [one["metric"] for one in body["data"]["result"]]
        check("thanos: " + text, None if found == want else "%s instead of %s" % (found, want))
    for path, parameters, want in [("/api/v1/label/cluster/values", {}, ["c1"]),
                                   ("/api/v1/label/replica/values", {"match[]": "queue{cluster=\"c1\"}"}, ["r-0"]),
                                   ("/api/v1/label/replica/values", {"match[]": "queue{cluster=\"c2\"}"}, []),
                                   ("/api/v1/labels", {"match[]": "queue{replica=\"r-0\"}"}, ["__name__", "cluster", "path", "pod", "replica", "zone"])]:
        _, body, _ = get(reader.base, path, **dict(all_time, **parameters))
        check("thanos: %s %s" % (path, parameters), None if body["data"] == want else "%s instead of %s" % (body["data"], want))


def unreachable(cached, gateway, arguments, flags, log):
    """Without the S3 server a query whose data is cached succeeds, another one fails in time; afterwards it succeeds again."""
    reader = Chronolith(arguments.server, flags, log)
    get(reader.base, "/api/v1/query", query="sum(temperature)", time=START + 5 * 3600)
    before = get(cached.base, "/api/v1/query", query="sum(queue)", time=START + 5 * 3600)
    gateway.kill()
    gateway.wait()
    after = get(cached.base, "/api/v1/query", query="sum(queue)", time=START + 5 * 3600)
    why = None if after[0] == 200 and after[1]["data"] == before[1]["data"] else "status %d: %s" % after[:2]
    check("cached data is answered without the bucket", why)
    status, body, seconds = get(reader.base, "/api/v1/query", query="sum(queue)", time=START + 5 * 3600, timeout="2s")
    why = None if status == 503 and body.get("status") == "error" else "status %d: %s" % (status, body)
    check("an unreachable bucket is 503", why)
    check("an unreachable bucket is answered in time", None if seconds < 4 else "%.1f s" % seconds)
    again = start_gateway(arguments, log)
    for _ in range(50):
        status, body, _ = get(reader.base, "/api/v1/query", query="sum(queue)", time=START + 5 * 3600)
        if status == 200:
            break
        time.sleep(0.2)
    check("a bucket that is back is read again", None if status == 200 else "status %d" % status)
    return again


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="binary of Chronolith")
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--versitygw", help="binary of versitygw; without it the S3 part is not run")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bucket-read-")
    atexit.register(shutil.rmtree, work, True)
    log = open(os.path.join(work, "log"), "w")
    data = os.path.join(work, "data")
    make_blocks(arguments.promtool, data, (0, HOURS), 3)
    buckets = {"directory": os.path.join(work, "bucket", "anonymous"), "s3": os.path.join(work, "s3", BUCKET, "anonymous")}
    for target in buckets.values():
        shutil.copytree(data, target, ignore=lambda _, names: [n for n in names if n in ("lock", "wal")])
    port = free_port()
    prometheus = "http://127.0.0.1:%d" % port
    config = os.path.join(work, "prometheus.yml")
    open(config, "w").write("{}")
    process = start([arguments.prometheus, "--config.file", config, "--storage.tsdb.path", data, "--web.listen-address",
                     "127.0.0.1:%d" % port, "--storage.tsdb.retention.time", "20y"], log)
    wait_for(prometheus + "/-/ready", process)

    own_data = os.path.join(work, "own")
    shutil.copytree(buckets["s3"], os.path.join(own_data, "tenants", "anonymous"))
    own = Chronolith(arguments.server, ["--data-dir", own_data, "--retention", "100y", "--self-scrape", "0s"], log)
    read_only = ["--read-only", "--bucket.poll", "1s"]
    flags = ["--bucket", "file://" + os.path.dirname(buckets["directory"])]
    reader = Chronolith(arguments.server, read_only + flags, log)
    compare("directory", own.base, reader.base)
    compare("directory and Prometheus", prometheus, reader.base, is_any_version=True)
    refused_writes(reader)
    thanos(arguments, own, data, work, log)
    new_block(arguments, reader, work, buckets["directory"])
    if arguments.versitygw:
        arguments.s3_port, arguments.s3_root = free_port(), os.path.join(work, "s3")
        gateway = start_gateway(arguments, log)
        reader = Chronolith(arguments.server, read_only + s3_flags(arguments), log)
        compare("s3", own.base, reader.base)
        gateway = unreachable(reader, gateway, arguments, read_only + s3_flags(arguments), log)
    else:
        print("not run: S3 (no --versitygw)")

    report(log)


main()
