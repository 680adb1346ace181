"""Faults of the topic: its settings, foreign records, records that retention removed, another topic of its name."""
import glob
import http.client
import os
import random
import re
import shutil
import signal

from checks import Ledger, check, until
from nodes import Client

TOPIC = "faults"
GAP = re.compile(r"--owner\.accept-gap (\d+)-(\d+)")


def status_of(node, role):
    """State of a role of a process, as its status page has it."""
    status, answer = node.client.api("/api/v1/status/cluster", {}, post=False)
    return (answer.get("data") or {}).get(role) or {} if status == 200 else {}


def too_large(ledger, broker):
    """The topic takes smaller records than the gateway writes."""
    samples = [(ledger.base_ms + number, random.random()) for number in range(2000)]

    def write():
        client = Client(ledger.cluster.gateway.url, timeout=60)
        status, _, body = client.write([({"__name__": "large"}, samples)])
        return status, body.decode("utf-8", "replace")
    broker.tell("set %s max.message.bytes 4000" % TOPIC)
    # Brokers obey a setting after they have acknowledged it.
    status, body = until(write, lambda answer: answer[0] != 204)
    sizes = re.search(r"record of (\d+) bytes, the log takes at most (\d+)", body)
    is_right = status == 413 and sizes and int(sizes.group(1)) > 4000 > int(sizes.group(2)) > 3000
    check("a record that is too large for the topic gets 413 with both sizes", is_right, (status, body))
    status = ledger.write()[0]
    check("smaller records are written meanwhile", status == 204, status)
    broker.tell("set %s max.message.bytes 1048588" % TOPIC)
    answer = until(write, lambda answer: answer[0] == 204)
    check("large records are written once the topic takes them", answer[0] == 204, answer)
    ledger.check("record too large: what was acknowledged is there")


def undecodable(ledger, broker):
    """Records of other programs, and one that was cut short, are kept in the bucket, and the owner goes on."""
    owner, name = ledger.cluster.owners[0], "chronolith_owner_refused_records_total"
    before = owner.metric(name)
    for number, garbage in enumerate([b"not a record of this log", b"", bytes(range(256)) * 9], 1):
        broker.tell("append %s 0 %s" % (TOPIC, garbage.hex() or "-"))
        state = until(lambda: status_of(owner, "owner"), lambda state: state.get("refusedRecords") == before + number)
        check("record %d that cannot be decoded is counted on the status page" % number,
              state.get("refusedRecords") == before + number, state)
        path = os.path.join(ledger.cluster.bucket, "cluster", "refused", "0", str(state.get("lastRefusedOffset")))
        kept = open(path, "rb").read() if os.path.exists(path) else None
        check("record %d that cannot be decoded is kept in the bucket" % number, kept == garbage, (path, kept))
    check("records that cannot be decoded are counted in the metric", owner.metric(name) == before + 3, owner.metric(name))
    statuses = [ledger.write()[0] for _ in range(3)]
    check("records that cannot be decoded: writes go on", statuses == [204] * 3, statuses)
    ready = until(lambda: owner.client.request("GET", "/-/ready")[0], lambda status: status == 200)
    check("records that cannot be decoded: the owner goes on", ready == 200, ready)
    ledger.check("records that cannot be decoded: what was acknowledged is there")


def health(node):
    """Status and text of a process that may need an operator."""
    try:
        status, _, body = node.client.request("GET", "/-/healthy")
    except (OSError, http.client.HTTPException) as why:
        return 0, str(why)
    return status, body.decode("utf-8", "replace")


def refuses(name, node, *wanted):
    """Checks that a process needs an operator and names the texts; returns its text."""
    status, text = until(lambda: health(node), lambda answer: answer[0] == 503 and all(want in answer[1] for want in wanted))
    check(name, status == 503 and all(want in text for want in wanted), (status, text, node.process.poll()))
    return text


def goes_on(name, owner, text):
    """Starts an owner with the flag of its text; the gap is in the bucket, and later starts need no flag."""
    gap = GAP.search(text)
    if not gap:
        return check(name, False, text)
    number = owner.argv[owner.argv.index("--owner.partition") + 1]
    flags = ["--owner.accept-gap", "%s-%s" % gap.groups()]
    owner.argv += flags
    restart(owner)
    check(name, owner.client.wait_ready(seconds=60), owner.log_tail())
    bucket = owner.argv[owner.argv.index("--bucket") + 1][len("file://"):]
    path = os.path.join(bucket, "cluster", "accepted-gaps", number, "%s-%s" % gap.groups())
    line = open(path).read() if os.path.exists(path) else "absent"
    check(name + ", which is recorded", line.startswith("accepted at 20"), (path, line))
    del owner.argv[-len(flags):]
    # The position is in the directory once it is synced.
    resume = os.path.join(bucket, "cluster", "resume", number, "*")
    until(lambda: glob.glob(resume), bool, 15)
    restart(owner)
    check(name + ", and later without the flag", owner.client.wait_ready(seconds=60), owner.log_tail())


def restart(node, how=signal.SIGTERM, is_empty=False):
    if node.process.poll() is None:
        node.stop(how)
    if is_empty:
        shutil.rmtree(node.data_dir)
    node.start()


def partition_of(ledger):
    """Partition that the ledger's series is in."""
    headers = {key.lower(): value for key, value in ledger.write()[1].items()}
    return int(headers["x-chronolith-offsets"].split(":")[1])


def trimmed(ledger, broker):
    """Retention has removed records that are in no block, and an owner has lost its directory."""
    number = 1 - partition_of(ledger)
    owner = ledger.cluster.owners[number]
    end = until(lambda: status_of(owner, "owner").get("logEnd") or 0, lambda end: end > 1)
    # The last record stays, and has the time until which the others were written.
    broker.tell("trim %s %d %d" % (TOPIC, number, end - 1))
    restart(owner, signal.SIGKILL, is_empty=True)
    text = refuses("an owner without the records of no block refuses, with their offsets and times", owner,
                   "to %d (exclusive) written before 20" % (end - 1), "--owner.accept-gap ", "-%d\n" % (end - 1))
    goes_on("the owner goes on with the accepted gap", owner, text)
    ledger.check("log starts after resume: what was acknowledged to the other partition is there")


def made_again(ledger, broker):
    """The topic is deleted and made again: its offsets are those of other records."""
    cluster = ledger.cluster
    broker.tell("delete %s" % TOPIC)
    status, headers, body, _ = until(ledger.write, lambda answer: answer[0] != 204)
    retry = {key.lower(): value for key, value in headers.items()}.get("retry-after")
    check("topic deleted: a write gets 503 with Retry-After", status == 503 and retry, (status, headers, body))
    restart(cluster.gateway)
    check("topic deleted: a gateway that may create it makes it again", cluster.gateway.client.wait_ready(seconds=60),
          cluster.gateway.log_tail())
    for owner in cluster.owners:
        refuses("topic made again: a running owner refuses", owner, "the directory is the cache of")
        restart(owner)
        code = until(owner.process.poll, lambda code: code is not None)
        check("topic made again: a start with the directory ends with the reason",
              code == 1 and "the directory is the cache of" in owner.log_tail(), (code, owner.log_tail()))
    for owner in cluster.owners:
        restart(owner, is_empty=True)
        text = refuses("topic made again: an owner without a directory refuses, with offset and time", owner,
                       "(stored at 20", "--owner.accept-gap")
        goes_on("topic made again: the owner goes on with the accepted gap", owner, text)
    again = Ledger(cluster, "again")
    statuses = [again.write()[0] for _ in range(10)]
    check("topic made again: writes are acknowledged", statuses == [204] * 10, statuses)
    again.check("topic made again: what was acknowledged is there")
