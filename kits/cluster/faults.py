#!/usr/bin/env python3
"""Faults of brokers, bucket, topic and owners under the processes of a cluster, over real brokers of Kafka.

Each fault has to give the answer that docs/scale-out.md names, nothing that was acknowledged is lost, and the
cluster goes on by itself when the fault ends, or by the flag that the text of the process names. With --brokers 3 two
of three brokers are killed instead of the only one, so that the copies that the topic asks for are missing: brokers ask
for no more copies than a partition has, so one broker cannot lack any.
"""
import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import topic_faults
from checks import RESULTS, Ledger, check, until
from nodes import TOKEN, Broker, Cluster, NotRun
from protocol import crc32c
from tsdbwire import STRONG, Client

ACK_TIMEOUT_S = 2
# A start without a log ends within 15 s; the rest is the start of a process on a busy machine.
START_WITHIN_S = 20
# Query nodes ask owners for reports every 5 s.
REPORTED_WITHIN_S = 8
SECRETS = ["not-the-secret", "alice-secret"]


def refused_starts(args, broker, work):
    """Starts that cannot reach the log end in time, with the broker's address and without a secret."""
    def login(listener, *flags):
        return ["--log", "kafka://%s/starts" % broker.settings[listener], *flags]

    def file(name):
        return os.path.join(broker.settings["files"], name)
    plain = ["--log.sasl-mechanism", "plain", "--log.sasl-user", "alice", "--log.sasl-secret-file", file("wrong.password")]
    cases = [
        ("a wrong password", "sasl", login("sasl", *plain), "", 1),
        ("an unknown authority", "tls", login("tls", "--log.tls=true", "--log.tls-ca-file", file("other-ca.pem")), "certificate", 1),
        ("no encryption to a port with TLS", "tls", login("tls"), "TLS", 1),
        ("a missing topic", "plain", login("plain"), "kafka-topics.sh", 1),
        ("a partition that the log lacks", None,
         login("plain", "--log.create-topic", "1:1", "--role", "owner", "--owner.partition", "3"), "owner.partition", 2),
        ("an owner without a log", None, ["--role", "owner", "--owner.partition", "0"], "log", 2),
        ("a partition that is no number", None, login("plain", "--role", "owner", "--owner.partition", "x"), "owner.partition", 2),
        ("roles that exclude each other", None, login("plain", "--role", "all,gateway"), "all excludes other roles", 2),
    ]
    if not socket.gethostname()[-1].isdigit():
        cases.append(("a host name without a number", None,
                      login("plain", "--role", "owner", "--owner.partition", "auto"), "owner.partition", 2))
    for name, listener, flags, want, code in cases:
        argv = [args.server, "serve", "--http", "127.0.0.1:0", "--data-dir", os.path.join(work, "refused"),
                "--bucket", "file://" + os.path.join(work, "bucket")]
        argv += flags if "--role" in flags else ["--role", "gateway", *flags]
        start = time.time()
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=3 * START_WITHIN_S)
        except subprocess.TimeoutExpired:
            check("start with %s ends" % name, False, "still runs after %d s" % (3 * START_WITHIN_S))
            continue
        text, took = done.stdout + done.stderr, time.time() - start
        # A broker that does not fit is named alone.
        addresses = broker.settings[listener].split(",") if listener else [""]
        is_right = (done.returncode == code and took < START_WITHIN_S and want in text
                    and any(address in text for address in addresses)
                    and not any(secret in text for secret in SECRETS))
        check("start with %s ends with %d and the reason" % (name, code), is_right,
              "exit %s after %.1f s: %s" % (done.returncode, took, text[-600:]))


def without_log(ledger, copies, name, stop, start):
    """While brokers do not acknowledge: 503, reads go on, nothing is acknowledged; afterwards all recovers."""
    before = len(ledger.acknowledged)
    stop()
    status, headers, body, took = ledger.write()
    retry = {key.lower(): value for key, value in headers.items()}.get("retry-after")
    check("%s: a write gets 503 with Retry-After within the timeout" % name,
          status == 503 and retry and took < 5 * ACK_TIMEOUT_S, (status, headers, body, took))
    stored = ledger.stored({})
    check("%s: reads go on" % name, isinstance(stored, set) and ledger.acknowledged <= stored, stored)
    # The only broker that is left may lead all partitions: then owners read on, and only writes are refused.
    ready = until(lambda: [node.client.request("GET", "/-/ready")[0] for node in ledger.cluster.owners],
                  lambda all_of: 503 in all_of)
    check("%s: owners notice it, or have a leader" % name, 503 in ready or copies > 1, ready)
    time.sleep(REPORTED_WITHIN_S)
    stored, warnings = ledger.stored_and_warnings({})
    check("%s: reads go on once query nodes know it" % name,
          isinstance(stored, set) and ledger.acknowledged <= stored, stored)
    check("%s: the answer names a log that is missing" % name,
          any("its log cannot be read" in warning for warning in warnings) == (503 in ready), (ready, warnings))
    check("%s: nothing is acknowledged" % name, len(ledger.acknowledged) == before)
    start()
    status = until(lambda: ledger.write()[0], lambda status: status == 204)
    check("%s: writes are acknowledged again by themselves" % name, status == 204, status)
    ready = until(lambda: [node.client.request("GET", "/-/ready")[0] for node in ledger.cluster.nodes()],
                  lambda all_of: set(all_of) == {200})
    check("%s: all nodes are ready again" % name, set(ready) == {200}, ready)
    ledger.check("%s: what was acknowledged is there" % name)


def bucket_away(ledger, work):
    """The bucket fails each request: writes and queries of recent samples go on."""
    bucket = os.path.join(work, "bucket")
    os.rename(bucket, bucket + ".away")
    # A file in its place makes each request fail, where a missing directory would be a bucket without objects.
    with open(bucket, "w"):
        pass
    try:
        # Longer than the poll of the bucket, and than the one of the partition map.
        end, statuses, reads = time.time() + 7, [], []
        while time.time() < end:
            statuses.append(ledger.write()[0])
            reads.append(ledger.stored())
            time.sleep(0.2)
        check("bucket away: writes go on", set(statuses) == {204}, statuses)
        bad = [read for read in reads if not isinstance(read, set)]
        check("bucket away: queries of recent samples go on", not bad and ledger.acknowledged <= reads[-1], bad[:2] or reads[-1])
    finally:
        os.remove(bucket)
        os.rename(bucket + ".away", bucket)
    ledger.check("bucket back: what was acknowledged is there")


def owner_hangs(ledger):
    """An owner stands still: writes go on, a query waits or says which partition is missing."""
    owner = ledger.cluster.owners[-1]
    owner.process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(4, lambda: owner.process.send_signal(signal.SIGCONT))
    timer.start()
    statuses = [ledger.write()[0] for _ in range(5)]
    check("owner hangs: writes go on", statuses == [204] * 5, statuses)
    stored = ledger.stored()
    is_right = ledger.acknowledged <= stored if isinstance(stored, set) else stored.startswith("503 ")
    check("owner hangs: a query has all samples or is refused", is_right, stored)
    timer.join()
    ledger.check("owner hangs: what was acknowledged is there")


def long_series(ledger):
    """Samples of a series that are more than a record takes are in several ones, and all of them are stored."""
    count = 200_000
    samples = [(ledger.base_ms + n, float(n * n % 977) + 1 / (n + 3)) for n in range(count)]
    status, _, body = Client(ledger.cluster.gateway.url, timeout=60).write([({"__name__": "long"}, samples)])
    check("a series of %d samples is written" % count, status == 204, (status, body[:300]))
    query = {"query": "count_over_time(long[2h])", "time": ledger.base_ms / 1000 + 7000}
    answer = Client(ledger.cluster.query.url, STRONG, timeout=60).api("/api/v1/query", query)[1]
    found = [series["value"][1] for series in answer.get("data", {}).get("result", [])]
    check("a series of %d samples is stored" % count, found == [str(count)], answer)


def foreign_calls(ledger):
    """Calls between nodes need the token."""
    for node in ledger.cluster.owners + [ledger.cluster.query]:
        for headers in ({}, {"Authorization": "Bearer another-token-0123456789"}):
            status = Client(node.url, headers).request("POST", "/internal/v1/select", b"")[0]
            check("a select without the token of the nodes gets 401", status == 401, status)


def other_version(ledger):
    """A call of a node of another version is refused with both versions."""
    body = b"CLSQ" + bytes([77])
    body += crc32c(body).to_bytes(4, "little")
    client = Client(ledger.cluster.owners[0].url, {"Authorization": "Bearer " + TOKEN.strip()})
    status, _, text = client.request("POST", "/internal/v1/select", body)
    text = text.decode("utf-8", "replace")
    check("a select of another version gets 409 with both versions",
          status == 409 and "version 77" in text and "this node has version" in text, (status, text))


def run(args, broker, work):
    os.makedirs(os.path.join(work, "bucket"))
    refused_starts(args, broker, work)
    copies = min(3, args.brokers)
    flags = ["--log.ack-timeout", "%ds" % ACK_TIMEOUT_S, "--self-scrape", "off"]
    cluster = Cluster(args.server, work, broker.address, 2, "faults", flags, ["--self-scrape", "off"], copies)
    try:
        ledger = Ledger(cluster)
        statuses = [ledger.write()[0] for _ in range(20)]
        check("writes before the faults", statuses == [204] * 20, statuses)
        ledger.check("queries before the faults")
        partitions = topic_faults.status_of(cluster.gateway, "gateway").get("partitions")
        check("a missing topic is created with its partitions", partitions == 2, partitions)
        foreign_calls(ledger)
        other_version(ledger)
        long_series(ledger)
        topic_faults.too_large(ledger, broker)
        topic_faults.undecodable(ledger, broker)
        chosen = ["1"] if args.brokers == 1 else ["2", "3"]

        def tell(verb):
            return lambda: [broker.tell("%s %s" % (verb, number)) for number in chosen]
        without_log(ledger, copies, "broker killed", tell("kill"), tell("start"))
        without_log(ledger, copies, "broker hangs", tell("pause"), tell("resume"))
        bucket_away(ledger, work)
        owner_hangs(ledger)
        dead = [node.argv for node in cluster.nodes() if node.process.poll() is not None]
        check("no process has ended", not dead, dead)
        topic_faults.trimmed(ledger, broker)
        topic_faults.made_again(ledger, broker)
        if not all(RESULTS):
            for node in cluster.nodes():
                print("--- last lines of %s\n%s" % (node.log.name, node.log_tail()))
    finally:
        cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/chronolith", help="binary that was built with the feature kafka")
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs")
    args = parser.parse_args()
    # Ends by the way of `finally`, which kills the nodes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = tempfile.mkdtemp(prefix="kit-faults-")
    broker = None
    try:
        broker = Broker(args.brokers)
        run(args, broker, work)
    except NotRun as why:
        print("not run: %s" % why)
    finally:
        if broker:
            broker.end()
        if args.keep:
            print("kept " + work)
        else:
            shutil.rmtree(work, ignore_errors=True)
    failed = RESULTS.count(False)
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
