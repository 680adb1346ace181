#!/usr/bin/env python3
"""Upload the blocks of a server to a bucket and compare every answer.

A server gets blocks of Prometheus in its data directory and a bucket (a local
directory, and an S3 server if one is given), and removes its local copies as
soon as the bucket has them. It is killed while it uploads and compacts. Then
it is compared with a server that has the same blocks and no bucket: as it is,
started again on an empty data directory, and read-only. Blocks that
`chronolith bucket download` brings back are opened by promtool.
"""
import argparse
import atexit
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from databases import databases
from harness import (BUCKET, HOURS, START, Chronolith, blocks_of, check, compare, free_port, get, make_blocks, report,
                    s3_flags, start_gateway)

KILLS = 6
NO_LIMIT = ["--retention", "100y", "--self-scrape", "0s"]


def metric(server, name):
    text = urllib.request.urlopen(server.base + "/metrics", timeout=10).read().decode()
    found = re.search(r"^%s (\S+)$" % name, text, re.M)
    return float(found.group(1)) if found else None


def local_blocks(data):
    directory = os.path.join(data, "tenants", "anonymous")
    return blocks_of(directory) if os.path.isdir(directory) else []


def wait_until_uploaded(server, data):
    """All blocks are in the bucket and none is left on the local disk."""
    for _ in range(600):
        if not local_blocks(data) and metric(server, "chronolith_bucket_upload_waiting_blocks") == 0:
            return None
        time.sleep(0.2)
    return "still local after 120 s: %s" % local_blocks(data)


def kill_while_uploading(start_server, rng):
    for _ in range(KILLS):
        server = start_server()
        time.sleep(rng.random() * 1.5)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()


def delete(server, own):
    """A deletion reaches blocks that only the bucket has."""
    parameters = "match[]=queue%7Bpod%3D~%22pod-4.*%22%7D&start={}&end={}".format(START + 5000, START + 20 * 3600)
    for one in (server, own):
        request = urllib.request.Request(one.base + "/api/v1/admin/tsdb/delete_series?" + parameters, b"", method="POST")
        status = urllib.request.urlopen(request, timeout=60).status
        check("a deletion is accepted", None if status == 204 else "status %d" % status)
    _, body, _ = get(own.base, "/api/v1/query", query="count(queue)", time=START + 10 * 3600)
    count = body["data"]["result"][0]["value"][1]
    check("a deletion deletes", None if float(count) < 25 else count)


def downloaded(arguments, flags, work, label):
    """promtool opens what `bucket download` brings back."""
    tool = [arguments.server, "bucket"]
    listed = subprocess.run(tool + ["ls", "--json", "--tenant", "anonymous"] + flags, stdout=subprocess.PIPE, check=True)
    ulids = re.findall(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", listed.stdout.decode())
    check(label + ": blocks are listed", None if ulids else listed.stdout.decode()[:300])
    target = os.path.join(work, "downloaded-" + label)
    verified = subprocess.run(tool + ["verify", "--tenant", "anonymous"] + flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(label + ": bucket verify", None if verified.returncode == 0 else verified.stdout.decode()[-300:])
    argv = tool + ["download", "--tenant", "anonymous", target] + flags
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(label + ": bucket download", None if done.returncode == 0 else done.stdout.decode()[-300:])
    ulids = blocks_of(target)
    with_deletion = [one for one in ulids if os.path.exists(os.path.join(target, one, "tombstones"))]
    check(label + ": a downloaded block has its deletions", None if with_deletion else "no tombstones in %s" % target)
    if arguments.encoding == "prometheus":
        for ulid in ulids:
            argv = [arguments.promtool, "tsdb", "analyze", target, ulid]
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            check(label + ": promtool analyzes a block", None if done.returncode == 0 else done.stdout.decode()[-300:])


def upload(arguments, label, flags, blocks, work, log):
    data, empty, own_data = (os.path.join(work, label, name) for name in ("data", "empty", "own"))
    for target in (data, own_data):
        shutil.copytree(blocks, os.path.join(target, "tenants", "anonymous"))
    encoding = ["--block-encoding", arguments.encoding]
    own = Chronolith(arguments.server, ["--data-dir", own_data] + NO_LIMIT + encoding + ["--web.enable-admin-api"], log)
    writing = flags + NO_LIMIT + encoding + ["--bucket.local-retention", "1s", "--bucket.poll", "1s", "--web.enable-admin-api"]

    def start_server(directory=data):
        return Chronolith(arguments.server, ["--data-dir", directory] + writing, log)

    kill_while_uploading(start_server, random.Random(7))
    server = start_server()
    compare(label + ", while uploading", own.base, server.base)
    check(label + ": all blocks are uploaded", wait_until_uploaded(server, data))
    compare(label + ", uploaded", own.base, server.base)
    reader = Chronolith(arguments.server, ["--read-only", "--bucket.poll", "1s"] + flags, log)
    compare(label + ", read-only", own.base, reader.base)
    delete(server, own)
    compare(label + ", deleted", own.base, server.base)
    time.sleep(2.5)
    get(reader.base, "/api/v1/query", query="count(queue)")
    time.sleep(1)
    compare(label + ", read-only after the deletion", own.base, reader.base)
    server.process.send_signal(signal.SIGTERM)
    check(label + ": the server stops", None if server.process.wait(60) == 0 else "exit code %d" % server.process.returncode)
    server = start_server(empty)
    compare(label + ", empty data directory", own.base, server.base)
    downloaded(arguments, flags, work, label)
    for one in (server, reader, own):
        one.process.kill()


def in_directory(arguments, blocks, work, log):
    """Both parts against directories, each with one of its own: answers without a metric name would have the series of both."""
    uploads, catalogues = os.path.join(work, "bucket"), os.path.join(work, "bucket-databases")
    for directory in (uploads, catalogues):
        os.mkdir(directory)
    return [
        lambda: upload(arguments, "directory", ["--bucket", "file://" + uploads], blocks, work, log),
        lambda: databases(arguments, "directory", ["--bucket", "file://" + catalogues], work, log),
    ]


def in_s3(arguments, blocks, work, log):
    """The same in an S3 server, with a prefix for the second part."""
    arguments.s3_port, arguments.s3_root = free_port(), os.path.join(work, "s3-server")
    os.makedirs(os.path.join(arguments.s3_root, BUCKET))
    start_gateway(arguments, log)
    flags = s3_flags(arguments)
    return [
        lambda: upload(arguments, "s3", flags, blocks, work, log),
        lambda: databases(arguments, "s3", ["--bucket", "s3://%s/databases" % BUCKET] + flags[2:], work, log),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="binary of Chronolith")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--encoding", default="prometheus", choices=["prometheus", "dense"])
    parser.add_argument("--versitygw", help="binary of versitygw; without it the S3 part is not run")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bucket-upload-")
    atexit.register(shutil.rmtree, work, True)
    log = open(os.path.join(work, "log"), "w")
    blocks = os.path.join(work, "blocks")
    make_blocks(arguments.promtool, blocks, (0, HOURS), 3)
    parts = in_directory(arguments, blocks, work, log)
    if arguments.versitygw:
        parts += in_s3(arguments, blocks, work, log)
    else:
        print("not run: S3 (no --versitygw)")
    # At the same time: each waits for its servers most of the time.
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(part) for part in parts]:
            done.result()
    report(log)


main()
