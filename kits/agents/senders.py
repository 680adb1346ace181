#!/usr/bin/env python3
"""Real senders of Graphite points against a server of their own.

collectd's write_graphite by TCP and UDP (points with known times and values by
its unixsock plugin, a NaN among them), carbon-c-relay with two restarts of the
server, and statsd's graphite backend: a connection for each flush; by TLS,
carbon-c-relay and openssl s_client.  What a sender sent is asked for by PromQL
and /render: names, times and values.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "wire"), os.path.join(HERE, "..", "cluster")]
import nodes  # noqa: E402
from tsdbwire import STRONG, Client, free_port  # noqa: E402

RESULTS = []
# First time of all points.
BASE_S = 1_700_000_000
WAIT_S = 20
# Enough for a batch of the relay, and far from its queue of 25,000.
RELAY_POINTS = 3000

COLLECTD = """
BaseDir "{dir}"
PIDFile "{dir}/pid"
TypesDB "/usr/share/collectd/types.db"
Hostname "kit"
Interval 3600
LoadPlugin unixsock
LoadPlugin write_graphite
<Plugin unixsock>
  SocketFile "{dir}/socket"
</Plugin>
<Plugin write_graphite>
  <Node "tcp">
    Host "127.0.0.1"
    Port "{port}"
    Protocol "tcp"
    Prefix "tcp."
    StoreRates false
  </Node>
  <Node "udp">
    Host "127.0.0.1"
    Port "{port}"
    Protocol "udp"
    Prefix "udp."
    StoreRates false
    EscapeCharacter "-"
  </Node>
</Plugin>
"""

RELAY = """
cluster server forward 127.0.0.1:{port};
match * send to server stop;
listen type linemode 127.0.0.1:{listen} proto tcp;
statistics submit every 3600 seconds;
"""


RELAY_TLS = """
cluster server forward localhost:{port} proto tcp transport plain ssl;
match * send to server stop;
listen type linemode 127.0.0.1:{listen} proto tcp;
statistics submit every 3600 seconds;
"""

TLS = """
tls_server_config:
  cert_file: server.crt
  key_file: server.key
"""


def check(name, is_met, why=""):
    RESULTS.append(is_met)
    print("%-6s %s%s" % ("ok" if is_met else "FAILED", name, "" if is_met else ": " + str(why)[:1500]), flush=True)


def until(ask, is_enough, seconds=WAIT_S):
    """The last answer, asked for again until it is enough."""
    end = time.time() + seconds
    while True:
        answer = ask()
        if is_enough(answer) or time.time() > end:
            return answer
        time.sleep(0.05)


class Server:
    """Chronolith on fixed ports, so that it can be started again. `reader` answers queries."""

    def __init__(self, binary, work, flags=()):
        self.port = free_port(21000 + os.getpid() % 8000)
        self.carbon = free_port(self.port + 1)
        self.argv = [binary, "serve", "--data-dir", os.path.join(work, "data"), "--http", "127.0.0.1:%d" % self.port,
                     "--carbon.listen", "127.0.0.1:%d" % self.carbon, *flags]
        self.log = open(os.path.join(work, "chronolith.log"), "ab")
        self.client = self.reader = Client("http://127.0.0.1:%d" % self.port)
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.argv, stdout=self.log, stderr=self.log)
        if not self.client.wait_ready():
            raise SystemExit("the server is not ready, see " + self.log.name)

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def kill(self):
        self.process.kill()

    def rejected(self):
        return self.counter("chronolith_write_samples_rejected_total", [])

    def points(self, pattern):
        """Points by series: {name: {second: value}}, the second a float if there are milliseconds."""
        query = '{__name__=~"%s"}[1d]' % pattern
        answer = self.reader.api("/api/v1/query", {"query": query, "time": BASE_S + 86000, "nocache": "1"})[1]
        if answer.get("status") != "success":
            return {"error": answer}
        return {one["metric"]["__name__"]: {at: float(value) for at, value in one["values"]}
                for one in answer["data"]["result"]}

    def expect(self, name, pattern, want, nudge=lambda: None):
        """Checks the points of the series that match, after waiting for them; `nudge` makes a sender go on."""
        def ask():
            nudge()
            return self.points(pattern)
        found = until(ask, lambda found: found == want)
        missing = {series: {at: v for at, v in points.items() if found.get(series, {}).get(at) != v}
                   for series, points in want.items() if found.get(series) != points}
        extra = [series for series in found if series not in want]
        check(name, found == want, "missing or different %s, unexpected %s" % (json.dumps(missing)[:800], extra[:20]))

    def counter(self, name, labels):
        """Sum of a counter's lines that have all of these labels."""
        text = self.client.request("GET", "/metrics")[2].decode()
        lines = [line for line in text.splitlines() if line.startswith(name + "{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in labels))


class ClusterServer(Server):
    """A cluster whose gateway listens for carbon, and whose query node is asked."""

    def __init__(self, binary, work, broker, partitions, flags=()):
        topic = os.path.basename(work)
        self.cluster = nodes.Cluster(binary, work, broker, partitions, topic, flags)
        self.port, self.carbon = self.cluster.next_port, self.cluster.carbon
        self.process = self.cluster.gateway.process
        self.client = self.cluster.gateway.client
        self.reader = Client(self.cluster.query.url, STRONG)

    def start(self):
        for node in self.writers():
            node.start()
        for node in self.writers():
            node.wait_ready()
        self.process = self.cluster.gateway.process

    def stop(self, how):
        for node in self.writers():
            node.stop(how)

    def writers(self):
        return self.cluster.nodes()[:-1]

    def rejected(self):
        owners = self.cluster.owners
        return super().rejected() + sum(owner.metric("chronolith_owner_rejected_samples_total") for owner in owners)

    def kill(self):
        self.cluster.end()


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def unixsock(path, lines):
    """Sends commands to collectd; each is answered by a line."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(WAIT_S)
        s.connect(path)
        answers = s.makefile("r")
        for line in lines:
            s.sendall((line + "\n").encode())
            answer = answers.readline()
            if not answer.startswith("0 "):
                raise SystemExit("collectd refuses %r: %r" % (line, answer))


def collectd(server, work):
    folder = os.path.join(work, "collectd")
    os.makedirs(folder)
    with open(folder + "/conf", "w") as f:
        f.write(COLLECTD.format(dir=folder, port=server.carbon))
    opened = server.counter("chronolith_carbon_connections_total", [])
    log = open(folder + "/log", "wb")
    process = subprocess.Popen(["collectd", "-f", "-C", folder + "/conf"], stdout=log, stderr=log)
    until(lambda: os.path.exists(folder + "/socket"), bool)
    # Gauges, a counter, a type of two values, a point without a value in the middle, a dot to escape.
    values = [1.5, -0.25, 1e300, 123456789.125, 0, 3.14159265358979]
    commands = []
    for at, value in enumerate(values):
        time_s = BASE_S + 10 * at
        commands.append("PUTVAL kit/kit-a.b/gauge-x interval=10 %d:%r" % (time_s, value))
        commands.append("PUTVAL kit/kit/derive-c interval=10 %d:%d" % (time_s, 1000 * at))
        commands.append("PUTVAL kit/kit/if_octets-eth0 interval=10 %d:%d:%d" % (time_s, at, 7 * at))
        if at == 2:
            commands.append("PUTVAL kit/kit-a.b/gauge-x interval=10 %d:U" % (time_s + 5))
    unixsock(folder + "/socket", commands)

    # Its threads may put a value into a buffer after the flush.
    def flush():
        unixsock(folder + "/socket", ["FLUSH"])
    seconds = [BASE_S + 10 * at for at in range(len(values))]
    counts = {at: 1000.0 * (at - BASE_S) / 10 for at in seconds}
    want = {}
    for prefix, escaped in (("tcp", "a_b"), ("udp", "a-b")):
        want["%s.kit.kit-%s.gauge-x" % (prefix, escaped)] = dict(zip(seconds, map(float, values)))
        want["%s.kit.kit.derive-c" % prefix] = counts
        want["%s.kit.kit.if_octets-eth0.rx" % prefix] = {at: (at - BASE_S) / 10 for at in seconds}
        want["%s.kit.kit.if_octets-eth0.tx" % prefix] = {at: 7 * (at - BASE_S) / 10 for at in seconds}
    server.expect("collectd: write_graphite by TCP", "tcp[.].*", {k: v for k, v in want.items() if k[0] == "t"}, flush)
    server.expect("collectd: write_graphite by UDP", "udp[.].*", {k: v for k, v in want.items() if k[0] == "u"}, flush)
    refused = until(lambda: server.counter("chronolith_carbon_points_refused_total", ['reason="nan"']),
                    lambda count: count >= 2)
    check("collectd: nan is refused once by each way and counted", refused == 2, refused)
    newest = json.loads(server.client.request("GET", "/api/v1/graphite/refused?reason=nan")[2])
    check("collectd: the line with nan is shown", "gauge-x nan" in json.dumps(newest), newest)
    unixsock(folder + "/socket", ["PUTVAL kit/kit/gauge-after interval=10 %d:1" % BASE_S])
    server.expect("collectd: points after nan", "(tcp|udp)[.].*after",
                  {"tcp.kit.kit.gauge-after": {BASE_S: 1.0}, "udp.kit.kit.gauge-after": {BASE_S: 1.0}}, flush)
    connections = server.counter("chronolith_carbon_connections_total", []) - opened
    check("collectd: one connection for all", connections == 1, connections)
    stop(process)


def send(port, lines):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        s.sendall("".join(lines).encode())


def relay(server, work):
    folder = os.path.join(work, "relay")
    os.makedirs(folder)
    listen = free_port(server.carbon + 1)
    with open(folder + "/conf", "w") as f:
        f.write(RELAY.format(port=server.carbon, listen=listen))
    log = open(folder + "/log", "wb")
    process = subprocess.Popen(["carbon-c-relay", "-f", folder + "/conf"], stdout=log, stderr=log)

    until(lambda: is_listening(listen), bool)
    want = {}

    def feed(part):
        lines = []
        for number in range(RELAY_POINTS):
            name = "relay.%s.s%d" % (part, number % 10)
            at = BASE_S + number // 10
            want.setdefault(name, {})[at] = number + 0.5
            lines.append("%s %.1f %d\n" % (name, number + 0.5, at))
        send(listen, lines)

    feed("up")
    server.expect("carbon-c-relay: lines", "relay[.].*", want)
    server.stop(signal.SIGTERM)
    feed("stopped")
    server.start()
    server.expect("carbon-c-relay: nothing is lost when the server is stopped and started", "relay[.].*", want)
    # The server syncs points within 0.1 s of reading them; a relay gets no acknowledgement.
    time.sleep(0.3)
    server.stop(signal.SIGKILL)
    # The first line that it writes to the dead connection is not in its queue any more.
    for _ in range(3):
        send(listen, ["probe.of.relay 1 %d\n" % BASE_S])
        time.sleep(0.1)
    feed("killed")
    server.start()
    server.expect("carbon-c-relay: nothing is lost when the server is killed and started", "relay[.].*", want)
    stop(process)
    version = subprocess.run(["carbon-c-relay", "-v"], capture_output=True, text=True).stdout
    if "gzip" not in version:
        print("not run: this carbon-c-relay has no gzip (%s)" % " ".join(version.split()))


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def tls(start, work):
    """carbon-c-relay and openssl over TLS, and a sender without it, against a server of their own."""
    folder = os.path.join(work, "tls")
    os.makedirs(folder)
    crt, key = folder + "/server.crt", folder + "/server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", crt], check=True, capture_output=True)
    with open(folder + "/carbon.yml", "w") as f:
        f.write(TLS)
    server = start(folder, ["--carbon.tls", folder + "/carbon.yml", "--carbon.allow", "127.0.0.0/8"])
    listen = free_port(server.carbon + 1)
    with open(folder + "/conf", "w") as f:
        f.write(RELAY_TLS.format(port=server.carbon, listen=listen))
    log = open(folder + "/log", "wb")
    process = subprocess.Popen(["carbon-c-relay", "-f", folder + "/conf", "-C", crt], stdout=log, stderr=log)
    try:
        until(lambda: is_listening(listen), bool)
        want = {}
        lines = []
        for number in range(RELAY_POINTS):
            name = "relay.tls.s%d" % (number % 10)
            want.setdefault(name, {})[BASE_S + number // 10] = number + 0.5
            lines.append("%s %.1f %d\n" % (name, number + 0.5, BASE_S + number // 10))
        send(listen, lines)
        server.expect("carbon-c-relay: lines over TLS", "relay[.].*", want)
        s_client = ["openssl", "s_client", "-connect", "127.0.0.1:%d" % server.carbon, "-CAfile", crt,
                    "-verify_return_error", "-quiet", "-no_ign_eof"]
        for version in ("-tls1_2", "-tls1_3"):
            line = "openssl%s 1 %d\n" % (version, BASE_S)
            done = subprocess.run(s_client + [version], input=line.encode(), capture_output=True, timeout=WAIT_S)
            check("openssl s_client %s" % version, done.returncode == 0 and done.stdout == b"", done)
            server.expect("openssl s_client %s: a point" % version, "openssl%s" % version,
                          {"openssl%s" % version: {BASE_S: 1.0}})
        old = subprocess.run(s_client + ["-tls1_1", "-cipher", "ALL@SECLEVEL=0"], input=b"", capture_output=True)
        check("openssl s_client -tls1_1 is refused", old.returncode != 0, old)
        try:
            send(server.carbon, ["plain.point 1 %d\n" % BASE_S])
        except OSError:
            pass
        refused = until(lambda: server.counter("chronolith_carbon_tls_handshake_failures_total", ['"not_tls"']), bool)
        check("a sender without TLS is refused and counted", refused == 1, refused)
        server.expect("a sender without TLS stores nothing", "plain[.].*", {})
    finally:
        stop(process)
        server.kill()


def statsd(server):
    opened = server.counter("chronolith_carbon_connections_total", [])
    want, written = {}, b""
    flushes = 20
    for flush in range(flushes):
        at = BASE_S + 10 * flush
        stats = {
            "stats.counters.kit.requests.rate": flush / 10,
            "stats.counters.kit.requests.count": flush,
            "stats.timers.kit.latency.mean_90": 1.25 * flush,
            "stats.timers.kit.latency.std": flush / 7,
            "stats.gauges.kit.temperature": -3.5,
            "stats.sets.kit.users.count": 2,
            "stats.statsd.numStats": 4,
            "stats.statsd.graphiteStats.calculationtime": 1,
        }
        body = "".join("%s %s %d\n" % (name, repr(value), at) for name, value in stats.items())
        with socket.create_connection(("127.0.0.1", server.carbon), timeout=10) as s:
            s.sendall(body.encode())
            s.shutdown(socket.SHUT_WR)
            # statsd reads until the end, and takes anything for an error.
            written += s.recv(100)
        for name, value in stats.items():
            want.setdefault(name, {})[at] = float(value)
    server.expect("statsd: a connection for each flush", "stats[.].*", want)
    connections = server.counter("chronolith_carbon_connections_total", []) - opened
    check("statsd: %d connections, closed without a byte" % flushes, connections == flushes and written == b"",
          "%s connections, %r" % (connections, written))
    open_count = server.counter("chronolith_carbon_open_connections", [])
    query = urllib.parse.urlencode({"target": "stats.counters.kit.requests.count", "from": BASE_S - 10,
                                    "until": BASE_S + 190, "format": "json"})
    answer = json.loads(server.reader.request("GET", "/render?" + query)[2])
    points = [[value, at] for value, at in answer[0]["datapoints"]] if answer else []
    check("statsd: /render has the points", points == [[float(n), BASE_S + 10 * n] for n in range(flushes)], answer)
    check("statsd: no connection stays open", open_count == 0, open_count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/chronolith", help="binary of Chronolith")
    parser.add_argument("--only", default="statsd,collectd,carbon-c-relay,tls", help="senders, separated by commas")
    parser.add_argument("--topology", choices=["single", "cluster"], default="single", help="a server, or a cluster over "
                        "a log in a directory")
    parser.add_argument("--broker", metavar="HOST:PORT", help="broker of Kafka for the log of the cluster")
    parser.add_argument("--partitions", type=int, default=1, help="owners of the cluster, with a broker")
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="senders-")

    def start(folder, flags=()):
        if args.topology == "single":
            return Server(args.server, folder, flags)
        return ClusterServer(args.server, folder, args.broker, args.partitions, flags)
    server = start(work)
    try:
        chosen = args.only.split(",")
        if "statsd" in chosen:
            statsd(server)
        if "collectd" in chosen:
            collectd(server, work)
        if "carbon-c-relay" in chosen:
            relay(server, work)
        if "tls" in chosen:
            tls(start, work)
        check("no point was rejected", server.rejected() == 0)
    finally:
        server.kill()
        if args.keep:
            print("kept " + work)
        else:
            shutil.rmtree(work, ignore_errors=True)
    failed = RESULTS.count(False)
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
