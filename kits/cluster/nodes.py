"""Processes of a cluster for kits: clients write to a gateway and read from a query node.

Over a log in a directory, which one process has open, gateway and owner are one process with one partition. Over
a broker of Kafka, which ../kafka/broker.py starts, they are processes of their own, an owner per partition.
"""
import os
import subprocess
import sys
import time

KITS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
sys.path[:0] = [os.path.join(KITS, "wire"), os.path.join(KITS, "kafka")]
from tsdbwire import STRONG, Client, free_port  # noqa: E402

TOKEN = "token-of-the-kits-0123456789\n"
READY_WITHIN_S = 60


class NotRun(Exception):
    pass


class Node:
    """A process at a fixed port, so that it can be started again."""

    def __init__(self, binary, work, name, flags, port):
        self.port = port
        self.url = "http://127.0.0.1:%d" % port
        self.client = Client(self.url)
        self.data_dir = os.path.join(work, name)
        self.argv = [binary, "serve", "--http", "127.0.0.1:%d" % port, "--data-dir", self.data_dir, *flags]
        self.log = open(os.path.join(work, name + ".log"), "ab")
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.argv, stdout=self.log, stderr=self.log)

    def wait_ready(self):
        end = time.time() + READY_WITHIN_S
        while self.process.poll() is None and time.time() < end:
            if self.client.wait_ready(seconds=1):
                return
        raise SystemExit("%s is not ready:\n%s" % (" ".join(self.argv), self.log_tail()))

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def log_tail(self):
        with open(self.log.name, "rb") as log:
            return log.read().decode("utf-8", "replace")[-3000:]

    def metric(self, name, labels=()):
        """Sum of the samples of a metric whose lines have all of these texts."""
        lines = self.client.request("GET", "/metrics")[2].decode().splitlines()
        found = [line for line in lines if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if all(label in line for label in labels))


class Broker:
    """Brokers of Kafka; they end with this process, since the harness ends with its standard input."""

    def __init__(self, count=1):
        harness = os.path.join(KITS, "kafka", "broker.py")
        self.process = subprocess.Popen([sys.executable, harness, "serve", "--count", str(count)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        # Addresses by listener, and the folder of certificates and passwords.
        self.settings = {}
        while "ready" not in self.settings:
            line = self.process.stdout.readline()
            if line.startswith("not run: "):
                raise NotRun(line.strip()[len("not run: "):])
            if not line:
                raise SystemExit("the broker does not start")
            name, _, self.settings[name] = line.strip().partition("=")
        self.address = self.settings["plain"]

    def tell(self, line):
        """Sends a line to the harness (`kill 1`, `start 1`) and waits until it has obeyed."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "ok":
            raise SystemExit("%s: %s" % (line, answer))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Cluster:
    """Started and ready. `broker` is its address, `flags` are those of gateways and owners."""

    def __init__(self, binary, work, broker=None, partitions=1, topic="kit", flags=(), query_flags=(), copies=1):
        self.bucket = os.path.join(work, "bucket")
        os.makedirs(self.bucket, exist_ok=True)
        token = os.path.join(work, "token")
        with open(token, "w") as out:
            out.write(TOKEN)
        log = "kafka://%s/%s" % (broker, topic) if broker else "dir://" + os.path.join(work, "log")
        # Kits ask another process for what they have just changed.
        shared = ["--bucket", "file://" + self.bucket, "--bucket.poll", "1s",
                  "--cluster.node-token-file", token]
        # Ports below those that the system gives to connections.
        self.next_port = 21000 + os.getpid() % 8000
        self.carbon = self.port()
        logged = ["--log", log, "--log.create-topic", "%d:%d" % (partitions, copies), "--log.tenant-partitions", str(partitions)]
        carbon = ["--carbon.listen", "127.0.0.1:%d" % self.carbon]

        def node(name, own):
            return Node(binary, work, name, [*shared, *own], self.port())

        if broker:
            self.gateway = node("gateway", ["--role", "gateway", *logged, *carbon, *flags])
            # The gateway creates the topic.
            self.gateway.wait_ready()
            self.owners = [node("owner-%d" % number, ["--role", "owner", *logged, "--owner.partition", str(number), *flags])
                           for number in range(partitions)]
        else:
            assert partitions == 1, "a process owns one partition"
            self.gateway = node("gateway", ["--role", "gateway,owner", *logged, "--owner.partition", "0", *carbon, *flags])
            self.owners = [self.gateway]
        for owner in self.owners:
            owner.wait_ready()
        owners = ",".join("127.0.0.1:%d" % owner.port for owner in self.owners)
        self.query = node("query", ["--role", "query", "--owners", owners, *query_flags])
        self.query.wait_ready()
        self.settle()

    def port(self):
        self.next_port = free_port(self.next_port + 1)
        return self.next_port

    def nodes(self):
        return list(dict.fromkeys([self.gateway, *self.owners, self.query]))

    def settle(self):
        """Waits until a query sees everything that has been acknowledged, on the query node."""
        end = time.time() + READY_WITHIN_S
        while True:
            status, answer = self.query.client.request("GET", "/api/v1/query?query=up&nocache=1", None,
                                                       dict(STRONG, **{"X-Scope-OrgID": "kit"}))[::2]
            if status == 200:
                return
            if time.time() > end:
                raise SystemExit("no answer from the query node: %d %s" % (status, answer[:300]))
            time.sleep(0.05)

    def end(self):
        for node in self.nodes():
            node.process.kill()
        for node in self.nodes():
            node.process.wait()
