#!/usr/bin/env python3
"""Run kits that write and read against a cluster: they write to a gateway and read from a query node.

Each kit gets a cluster of its own, see nodes.py, and the variable CHRONOLITH_TOPOLOGY=cluster. Where an answer
differs from the one of a single server, the kit expects the other answer, so that each further difference fails;
docs/scale-out.md lists the differences with their reasons.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from nodes import Broker, Cluster, NotRun

KITS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
# The scripts begin at 1970, each in a tenant of its own.
SCRIPT_FEATURES = ("promql-experimental-functions,promql-delayed-name-removal,promql-binop-fill-modifiers,"
                   "use-start-timestamps,promql-unquoted-utf8-names")
SCRIPT_FLAGS = ["--multitenancy", "--self-scrape=off", "--enable-feature=" + SCRIPT_FEATURES]
OWN_SCRIPTS = os.path.join(KITS, "..", "crates", "promql", "tests", "it", "promqltest", "own")
KIT_WITHIN_S = 600


def kit(*path):
    return os.path.join(KITS, *path)


def prom_peer(args, cluster):
    env = {"PROM": args.prometheus, "READ_URL": cluster.query.url, "PORT": str(cluster.port()), "SECONDS_": "15"}
    # Two further Prometheus servers of the kit.
    cluster.next_port += 2
    return ["bash", kit("prom-peer", "run.sh"), cluster.gateway.url], env


def clients(args, cluster):
    write, read = cluster.gateway.url, cluster.query.url
    return [args.python, kit("clients", "smoke.py"), "--query", read, "--remote-write", write + "/api/v1/write",
            "--metrics", write + "/metrics", "--influx", write, "--influx-query", read,
            "--graphite", "127.0.0.1:%d" % cluster.carbon, "--graphite-render", read + "/render"], {}


def influx_clients(args, cluster):
    return [args.python, kit("influx-clients", "replay.py"), cluster.gateway.url, "--read", cluster.query.url], {}


def grafana(_, cluster):
    return [sys.executable, kit("grafana-replay", "replay.py"), cluster.gateway.url, "--read", cluster.query.url,
            "--graphite-write", "127.0.0.1:%d" % cluster.carbon, "--only", "prom", "influx", "graphite"], {}


def abuse(_, cluster):
    return [sys.executable, kit("abuse", "abuse.py"), cluster.gateway.url, "--read", cluster.query.url,
            "--pid", str(cluster.gateway.process.pid), "--max-rss-mb", "2048"], {}


def promqltest(_, cluster):
    return [sys.executable, kit("promqltest", "run.py"), cluster.gateway.url, "--read", cluster.query.url,
            "--tenant-header", "X-Scope-OrgID", "--proto", "2", "--files", OWN_SCRIPTS], {}


# Name, command and environment for a running cluster, flags of all nodes, flags of gateways and owners alone.
RUNNING = {
    "clients": (clients, [], []),
    "influx-clients": (influx_clients, [], []),
    "grafana-replay": (grafana, [], []),
    "promqltest": (promqltest, SCRIPT_FLAGS, ["--future-limit=0"]),
    "abuse": (abuse, [], []),
    "prom-peer": (prom_peer, [], []),
}
# They start a cluster themselves.
STARTING = {"agents": lambda args: [sys.executable, kit("agents", "senders.py"), "--server", args.server,
                                    "--topology", "cluster", "--only", args.senders]}


def run(name, argv, env):
    """Returns the last line of a kit, or what is wrong without one, and its exit code."""
    env = dict(os.environ, CHRONOLITH_TOPOLOGY="cluster", PYTHONDONTWRITEBYTECODE="1", **env)
    print("$ " + " ".join(argv), flush=True)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    end, last = time.time() + KIT_WITHIN_S, ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if " passed, " in line else last
        if time.time() > end:
            process.kill()
    return last.strip(), process.wait()


def counts(name, line, code):
    """Passed and failed checks. A kit without a result is a failure, and so is an exit code without one."""
    words = line.replace(",", "").split()
    if len(words) < 4 or not words[0].isdigit() or not words[2].isdigit():
        print("FAIL %s ended without a result, exit code %d" % (name, code))
        return 0, 1
    passed, failed = int(words[0]), int(words[2])
    return passed, max(failed, int(code != 0))


def run_kit(args, name, broker, number):
    work = tempfile.mkdtemp(prefix="kit-cluster-")
    cluster = None
    try:
        if name in STARTING:
            argv = STARTING[name](args) + (["--broker", broker.address, "--partitions", str(args.partitions)] if broker else [])
            return counts(name, *run(name, argv, {}))
        command, of_all, of_writers = RUNNING[name]
        topic = "%s-%d" % (name, number)
        cluster = Cluster(args.server, work, broker and broker.address, args.partitions, topic, [*of_all, *of_writers], of_all)
        argv, env = command(args, cluster)
        passed, failed = counts(name, *run(name, argv, env))
        dead = [node for node in cluster.nodes() if node.process.poll() is not None]
        for node in dead:
            print("FAIL %s: a node has ended with %s" % (name, node.process.returncode))
        if failed or dead:
            for node in cluster.nodes():
                print("--- last lines of %s\n%s" % (node.log.name, node.log_tail()))
        return passed, failed + len(dead)
    finally:
        if cluster:
            cluster.end()
        if args.keep:
            print("kept " + work)
        else:
            shutil.rmtree(work, ignore_errors=True)


def main():
    names = [*RUNNING, *STARTING]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="target/release/chronolith", help="binary of Chronolith; with --kafka one "
                        "that was built with the feature kafka")
    parser.add_argument("--only", default=",".join(names), help="kits, separated by commas")
    parser.add_argument("--without", action="append", default=[], metavar="KIT", help="a kit that does not run")
    parser.add_argument("--kafka", action="store_true", help="gateway and owners as processes of their own, over a broker")
    parser.add_argument("--partitions", type=int, default=1, help="owners of the cluster, with --kafka")
    parser.add_argument("--python", default=sys.executable, help="Python with the packages of clients/requirements.txt "
                        "and influx-clients/requirements.txt")
    parser.add_argument("--prometheus", default="prometheus", help="Prometheus of the kit prom-peer")
    parser.add_argument("--senders", default="statsd,collectd,carbon-c-relay", help="senders of the kit agents")
    parser.add_argument("--keep", action="store_true", help="keep the directories with logs")
    args = parser.parse_args()
    unknown = [name for name in args.only.split(",") + args.without if name not in names]
    chosen = [name for name in args.only.split(",") if name not in args.without]
    if unknown or (args.partitions != 1 and not args.kafka):
        parser.error("--only takes %s; --partitions needs --kafka" % ", ".join(names))
    # Ends by the way of `finally`, which kills the nodes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    broker = None
    passed = failed = 0
    try:
        if args.kafka:
            broker = Broker()
        for number, name in enumerate(chosen):
            start = time.time()
            print("== %s" % name, flush=True)
            of_kit = run_kit(args, name, broker, number)
            print("== %s: %d passed, %d failed in %.1f s" % (name, *of_kit, time.time() - start), flush=True)
            passed, failed = passed + of_kit[0], failed + of_kit[1]
    except NotRun as why:
        print("not run: %s" % why)
    finally:
        if broker:
            broker.end()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
