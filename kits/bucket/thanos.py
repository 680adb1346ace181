#!/usr/bin/env python3
"""Compare answers of a real Thanos with ours over blocks that Chronolith uploaded with external labels.

A server uploads blocks of Prometheus in Thanos's layout. Some of their series
have a label of their own with the name of an external label, and two of them
are equal but for that label. `thanos store` and `thanos query` read the same
directory as `chronolith serve --read-only`; every answer is compared, and what
Thanos's own tools say of the bucket is checked. Run by hand: Thanos is no
package of Debian.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

from harness import START, Chronolith, blocks_of, check, compare, free_port, get, make_blocks, report, start, wait_for

HOURS = 27
EXTERNAL = 'cluster="eu",replica="a"'
# Series with own labels of the same names: the external label wins, and the first two become one series.
OWN = [("shared", 'cluster="own",pod="x"'), ("shared", 'pod="x"'), ("shared", 'cluster="own",pod="y"'),
       ("other", 'replica="b",zone="z"'), ("other", 'cluster="",zone="w"')]


def add_own_labels(promtool, directory):
    text = os.path.join(tempfile.mkdtemp(dir=os.path.dirname(directory)), "own.txt")
    with open(text, "w") as out:
        for metric in ("shared", "other"):
            out.write("# TYPE %s gauge\n" % metric)
            for number, (name, labels) in enumerate(OWN):
                if name != metric:
                    continue
                # The two that become one have samples at the same times: Thanos keeps those of the first.
                for i in range(number, HOURS * 60, 2):
                    out.write("%s{%s} %d %d\n" % (name, labels, 1000 * number + i, START + i * 60))
        out.write("# EOF\n")
    argv = [promtool, "tsdb", "create-blocks-from", "openmetrics", text, directory]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def upload(arguments, work, log):
    """A server that has uploaded all its blocks; returns the directory that is the bucket."""
    data, bucket = os.path.join(work, "data"), os.path.join(work, "bucket")
    blocks = os.path.join(data, "tenants", "anonymous")
    os.makedirs(bucket)
    make_blocks(arguments.promtool, blocks, (0, HOURS), 5)
    add_own_labels(arguments.promtool, blocks)
    flags = ["--data-dir", data, "--bucket", "file://" + bucket, "--bucket.layout", "thanos", "--bucket.poll", "1s",
             "--bucket.external-labels", EXTERNAL, "--block-encoding", "prometheus", "--retention", "100y",
             "--self-scrape", "0s", "--bucket.local-retention", "1s"]
    server = Chronolith(arguments.server, flags, log)
    waiting = None
    for _ in range(600):
        text = urllib.request.urlopen(server.base + "/metrics", timeout=10).read().decode()
        waiting = re.search(r"^chronolith_bucket_upload_waiting_blocks (\S+)$", text, re.M)
        if not blocks_of(blocks) and waiting and float(waiting.group(1)) == 0:
            break
        time.sleep(0.2)
    check("all blocks are uploaded", None if not blocks_of(blocks) else "%s left" % blocks_of(blocks))
    server.process.terminate()
    server.process.wait(60)
    return bucket


def check_meta(bucket):
    for ulid in blocks_of(bucket):
        meta = json.load(open(os.path.join(bucket, ulid, "meta.json")))["thanos"]
        check("external labels of " + ulid, None if meta["labels"] == {"cluster": "eu", "replica": "a"} else meta)
        check("upload time of " + ulid, None if meta.get("upload_time", "").endswith("Z") else meta)


def start_thanos(arguments, bucket, work, log):
    """Store gateway and query over the bucket; returns the base URL of the latter."""
    config = os.path.join(work, "objstore.yml")
    with open(config, "w") as out:
        out.write("type: FILESYSTEM\nconfig:\n  directory: %s\n" % bucket)
    grpc, ports = free_port(), [free_port() for _ in range(3)]
    store = start([arguments.thanos, "store", "--data-dir", os.path.join(work, "store"), "--objstore.config-file", config,
                   "--grpc-address", "127.0.0.1:%d" % grpc, "--http-address", "127.0.0.1:%d" % ports[0],
                   "--consistency-delay", "0s"], log)
    wait_for("http://127.0.0.1:%d/-/ready" % ports[0], store)
    query = start([arguments.thanos, "query", "--endpoint", "127.0.0.1:%d" % grpc, "--grpc-address", "127.0.0.1:%d" % ports[1],
                   "--http-address", "127.0.0.1:%d" % ports[2], "--query.auto-downsampling"], log)
    base = "http://127.0.0.1:%d" % ports[2]
    wait_for(base + "/-/ready", query)
    for _ in range(100):
        _, body, _ = get(base, "/api/v1/query", query="count(queue)", time=START + 3600)
        if body["data"]["result"]:
            break
        time.sleep(0.2)
    return base, config


def own_questions():
    for text in ["shared", "other", "count by (cluster, replica, pod, zone) ({__name__=~\"shared|other\"})", "shared{cluster=\"own\"}",
                 "shared{cluster=\"eu\"}", "other{replica=\"b\"}", "other{replica=~\"a|b\"}", "other{cluster=\"\"}", "sum(shared)",
                 "count_over_time(shared[10m])", "shared{cluster!=\"eu\"}", "max by (replica) (other)"]:
        yield text, "/api/v1/query_range", {"start": START, "end": START + 6 * 3600, "step": 300, "query": text}
        yield text + " at a time", "/api/v1/query", {"time": START + 7261, "query": text}
    all_time = {"start": START, "end": START + HOURS * 3600}
    for name in ("cluster", "replica", "pod", "zone"):
        yield "values of " + name, "/api/v1/label/%s/values" % name, all_time
    yield "series", "/api/v1/series", dict(all_time, **{"match[]": ["shared", "other"]})


def compare_own(label, want, found):
    for name, path, parameters in own_questions():
        a, b = get(want, path, **parameters), get(found, path, **parameters)
        texts = [json.dumps(sorted(json.dumps(one, sort_keys=True) for one in answers(body))) for _, body, _ in (a, b)]
        why = None if a[0] == b[0] and texts[0] == texts[1] else "%.300s instead of %.300s" % (texts[1], texts[0])
        check("%s: %s" % (label, name), why)


def answers(body):
    data = body.get("data")
    return data["result"] if isinstance(data, dict) else data


def tools(arguments, config):
    for argv in (["verify", "--issues", "overlapped_blocks"], ["inspect"], ["ls"]):
        done = subprocess.run([arguments.thanos, "tools", "bucket", argv[0], "--objstore.config-file", config] + argv[1:],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check("thanos tools bucket " + argv[0], None if done.returncode == 0 else done.stdout.decode()[-400:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="the program chronolith")
    parser.add_argument("thanos", help="the program thanos")
    parser.add_argument("promtool", help="promtool of Prometheus 3")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="kit-thanos-")
    log = open(os.path.join(work, "log"), "w+")
    try:
        bucket = upload(arguments, work, log)
        check_meta(bucket)
        thanos, config = start_thanos(arguments, bucket, work, log)
        reader = Chronolith(arguments.server, ["--read-only", "--bucket.layout", "thanos", "--bucket", "file://" + bucket], log)
        compare("thanos", thanos, reader.base, is_any_version=True)
        compare_own("own labels", thanos, reader.base)
        tools(arguments, config)
        report(log)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
