#!/usr/bin/env python3
"""Compare series of a bucket in Thanos's layout with those of Thanos's own store gateway.

Two servers with different external labels write, and upload to one bucket;
series have own labels of the same names, so that some are equal once the
external labels are set. Each selection is answered by a read-only process and
by Thanos's library (tools/thanos-store): labels, times, and bits of values.
"""
import argparse
import atexit
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from harness import Chronolith, blocks_of, check, get, report

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

HOUR_S, STEP_S = 3600, 30
START_S = 1_700_006_400 // 7200 * 7200
WRITERS = {"eu": 'cluster="eu",replica="a"', "us": 'cluster="us"'}
EVEN, ODD, ALL = (0, 2), (1, 2), (0, 1)

# Labels of a series, steps that have samples (first, distance), offset of the values.
SERIES = [
    ({"host": "plain"}, ALL, 0),
    ({"host": "own", "cluster": "own"}, ALL, 1),
    ({"host": "own-replica", "replica": "own", "zone": "z"}, ALL, 2),
    ({"host": "same-value", "cluster": "eu"}, ALL, 3),
    # Equal with external labels: samples in turn, of the same times, and the same.
    ({"host": "in-turn", "cluster": "x"}, EVEN, 4),
    ({"host": "in-turn", "cluster": "y"}, ODD, 5),
    ({"host": "same-times", "cluster": "x"}, ALL, 6),
    ({"host": "same-times", "cluster": "y"}, ALL, 7),
    ({"host": "same-samples", "cluster": "x"}, ALL, 8),
    ({"host": "same-samples"}, ALL, 8),
    ({"host": "three", "cluster": "x"}, EVEN, 9),
    ({"host": "three", "cluster": "y", "replica": "x"}, ODD, 10),
    ({"host": "three", "replica": "y"}, ALL, 11),
    # Their order changes with the value of `cluster`.
    ({"a": "1", "host": "order", "cluster": "zz"}, ALL, 12),
    ({"a": "1", "host": "order", "cluster": "aa", "zone": "z"}, ALL, 13),
    ({"a": "2", "host": "order", "cluster": "mm"}, ALL, 14),
]

# Matchers besides one on the metric name.
SELECTIONS = [
    "", "cluster=eu", "cluster=us", "cluster=own", "cluster!=own", "cluster!=eu", "cluster=", "cluster!=", "cluster=~e.*", "cluster!~e.*",
    "cluster=~own|eu", "cluster=~|eu", "replica=a", "replica=own", "replica=", "replica!=a", "replica=~.+", "host=own", "host=own cluster=eu",
    "host=own cluster=own", "host=in-turn", "host=same-times cluster=us", "host=same-samples replica!~b|c", "host=three", "host=order", "a=1",
    "zone=z cluster=eu replica=a", "host=~own.* cluster!=us", "none=", "none!=",
]


def metric(server, name):
    text = urllib.request.urlopen(server.base + "/metrics", timeout=10).read().decode()
    return sum(float(found) for found in re.findall(r"^%s(?:\{.*\})? (\S+)$" % name, text, re.M))


def wait_until(is_done):
    """Returns a text if it is not done within two minutes."""
    end = time.monotonic() + 120
    while not is_done():
        if time.monotonic() > end:
            return "not within 120 s"
        time.sleep(0.2)
    return None


def write(server, hours):
    """Samples of all series; values are not round, so that their bits are compared."""
    steps = range(hours * HOUR_S // STEP_S)
    series = []
    for labels, (first, distance), offset in SERIES:
        samples = [((START_S + k * STEP_S) * 1000 + 17, (k * 37 % 101 + offset * 1000) / 7) for k in steps[first::distance]]
        series.append((dict(labels, __name__="thanos_load"), samples))
    body = wire.snappy_literal(wire.encode_rw1(series))
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    request = urllib.request.Request(server.base + "/api/v1/write", body, headers)
    urllib.request.urlopen(request, timeout=60).read()


def upload(arguments, bucket, writer, work, log):
    flags = ["--data-dir", os.path.join(work, "data-" + writer), "--retention", "100y", "--self-scrape", "0s", "--flush-delay", "1s",
             "--flush-small-window", "0", "--idle-after", "3s", "--block-encoding", "prometheus", "--bucket", "file://" + bucket,
             "--bucket.layout", "thanos", "--bucket.external-labels", WRITERS[writer], "--bucket.local-retention", "1s", "--bucket.poll", "1s"]
    server = Chronolith(arguments.server, flags, log)
    blocks_before = len(blocks_of(bucket))
    write(server, arguments.hours)
    # The local copy goes only after the bucket has the block and the catalogue names it.
    local = lambda: blocks_of(os.path.join(work, "data-" + writer, "tenants", "anonymous"))
    is_done = lambda: metric(server, "chronolith_head_series") == 0 and len(blocks_of(bucket)) > blocks_before and not local()
    check(writer + " is uploaded", wait_until(is_done))
    server.process.terminate()
    server.process.wait()


def thanos_answers(arguments, bucket, work, delay, selections):
    cache = tempfile.mkdtemp(dir=work)
    text = "".join("__name__=thanos_load %s\n" % one for one in selections)
    done = subprocess.run([arguments.thanos_store, bucket, cache, delay], input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("thanos-store: " + done.stderr[:2000])
    return [json.loads(line) for line in done.stdout.splitlines()]


def own_answer(reader, selection, hours):
    """Series of a selection: labels, and (time in ms, bits of the value) of each sample."""
    matchers = [re.fullmatch(r"(\w+)(=~|!~|!=|=)(.*)", one).groups() for one in ["__name__=thanos_load"] + selection.split()]
    selector = "{%s}[%dh]" % (",".join("%s%s%s" % (name, op, json.dumps(value)) for name, op, value in matchers), hours + 1)
    status, body, _ = get(reader.base, "/api/v1/query", query=selector, time=START_S + hours * HOUR_S)
    if status != 200:
        return "status %d: %s" % (status, body)
    bits = lambda text: struct.pack(">d", float(text)).hex()
    return [(one["metric"], [(round(ts * 1000), bits(text)) for ts, text in one["values"]]) for one in body["data"]["result"]]


def seen_clusters(reader, hours):
    found = own_answer(reader, "", hours)
    return set() if isinstance(found, str) else {labels.get("cluster") for labels, _ in found}


def difference(want, found):
    """Returns a text unless both have the same series, and the found samples are those of Thanos: of one time, any of its values."""
    if isinstance(found, str):
        return found
    key = lambda labels: json.dumps(labels, sort_keys=True)
    chunks = {}
    for one in want:
        chunks.setdefault(key(one["labels"]), []).extend((sample["ms"], sample["bits"]) for sample in one["samples"])
    ours = {key(labels): samples for labels, samples in found}
    if len(ours) != len(found) or set(ours) != set(chunks):
        return "series %s instead of %s" % (sorted(key(labels) for labels, _ in found), sorted(chunks))
    for labels, samples in ours.items():
        times = [ms for ms, _ in samples]
        if times != sorted({ms for ms, _ in chunks[labels]}):
            return "%s: %d times instead of %d" % (labels, len(times), len({ms for ms, _ in chunks[labels]}))
        wrong = set(samples) - set(chunks[labels])
        if wrong:
            return "%s: %d values that Thanos does not have" % (labels, len(wrong))
    return None


def compare(arguments, bucket, work, log):
    reader = Chronolith(arguments.server, ["--read-only", "--bucket.layout", "thanos", "--bucket", "file://" + bucket, "--bucket.poll", "1s"], log)
    check("the read-only process sees both servers", wait_until(lambda: seen_clusters(reader, arguments.hours) == set(WRITERS)))
    answers = thanos_answers(arguments, bucket, work, "0s", SELECTIONS)
    check("one answer per selection", None if len(answers) == len(SELECTIONS) else "%d" % len(answers))
    for selection, want in zip(SELECTIONS, answers):
        check("select %s" % (selection or "all"), difference(want, own_answer(reader, selection, arguments.hours)))
    everything = answers[0]
    samples = sum(len(one["samples"]) for one in everything)
    check("Thanos has series", None if len({json.dumps(one["labels"]) for one in everything}) > len(WRITERS) * 8 else "%d" % len(everything))
    labels = {one["labels"].get("cluster") for one in everything}
    check("Thanos has external labels only", None if labels == set(WRITERS) else str(labels))
    print("compared: %d selections, %d series and %d samples in all" % (len(SELECTIONS), len(everything), samples))


def consistency_delay(arguments, bucket, work):
    """`upload_time` is what Thanos's consistency delay counts from: fresh blocks are ignored, those of two hours ago are not."""
    count = lambda: len(thanos_answers(arguments, bucket, work, "1h", [""])[0])
    check("Thanos waits for fresh blocks", None if count() == 0 else "%d series" % count())
    for name in os.listdir(bucket):
        path = os.path.join(bucket, name, "meta.json")
        if os.path.exists(path):
            meta = json.load(open(path))
            uploaded = time.strptime(meta["thanos"]["upload_time"][:19], "%Y-%m-%dT%H:%M:%S")
            meta["thanos"]["upload_time"] = "%04d" % (uploaded.tm_year - 1) + meta["thanos"]["upload_time"][4:]
            json.dump(meta, open(path, "w"))
    check("Thanos reads blocks that were uploaded earlier", None if count() > 0 else "no series")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="binary of Chronolith")
    parser.add_argument("--thanos-store", required=True, help="program of tools/thanos-store")
    parser.add_argument("--hours", type=int, default=3, help="hours of samples")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bucket-thanos-")
    atexit.register(shutil.rmtree, work, True)
    log = open(os.path.join(work, "log"), "w")
    bucket = os.path.join(work, "bucket")
    os.mkdir(bucket)
    for writer in WRITERS:
        upload(arguments, bucket, writer, work, log)
    compare(arguments, bucket, work, log)
    consistency_delay(arguments, bucket, work)
    report(log)


main()
