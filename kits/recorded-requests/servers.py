"""The servers that are asked: flags, files and listeners of each, and which requests it gets."""
import os
import shutil
import socket
import subprocess
import time

import cases_graphite
import cases_influx
import cases_prometheus
import cases_server
from tsdbwire import Client
from varying import Run

# Windows of stored points are long over: no block is written while requests are sent, so sizes stay equal.
QUIET = ["--self-scrape", "off", "--flush-delay", "87600h", "--idle-after", "0"]
FOREVER = ["--future-limit", "1h"]
TINY = ["--write.max-compressed", "2KiB", "--write.max-decompressed", "16KiB", "--series-limit", "40", "--label-count-limit", "6",
        "--label-name-length-limit", "10", "--label-value-length-limit", "40", "--out-of-order-window", "87600h", "--future-limit", "10m",
        "--query.max-samples", "60", "--query.memory", "1MiB", "--query.timeout", "30s", "--ingestion-burst", "100",
        "--ingestion-rate", "1000000", "--storage.remote.read-sample-limit", "20", "--influx.max-body-size", "2KiB",
        "--influx.max-line-size", "512", "--influx.max-text-size", "200", "--influx.max-row-limit", "5", "--influx.max-select-series", "6",
        "--influx.max-select-point", "40", "--influx.max-select-buckets", "50", "--influx.max-series-per-database", "10",
        "--influx.max-values-per-tag", "8", "--graphite.max-series", "2", "--graphite.max-points", "30", "--graphite.max-targets", "4",
        "--graphite.max-nodes", "2", "--graphite.max-tag-results", "2", "--graphite.max-event-size", "100", "--graphite.max-events", "3",
        "--graphite.max-meta-tags", "2", "--graphite.max-meta-tags-size", "100"]
LIMITS_OF_TENANT = """limits:
  query.max-lookback: 0
tenants:
  small:
    series-limit: 2
    ingestion-rate: 10
    ingestion-burst: 50
    label-count-limit: 6
    label-name-length-limit: 10
    label-value-length-limit: 40
"""
FEATURES = ("promql-experimental-functions,promql-delayed-name-removal,promql-binop-fill-modifiers,promql-unquoted-utf8-names,"
            "use-start-timestamps,type-and-unit-labels,query-cost")
READY_SECONDS = 120


class Variant:
    """A server by its flags; `{folder}` in them is its folder, `{NAME}` the address of a listener."""

    def __init__(self, name, flags, cases, files=None, listeners=(), bucket_of=None):
        self.name, self.flags, self.cases = name, flags, cases
        self.files, self.listeners = files or {}, tuple(listeners)
        # Name of the server whose snapshot is the bucket of this one.
        self.bucket_of = bucket_of


def variants():
    schemas = cases_graphite.schemas()
    graphite = ["--graphite.schemas", "{folder}/schemas.conf"]
    admin = ["--web.enable-admin-api", "--web.enable-lifecycle"]
    listen = ["--carbon.listen", "{carbon}", "--carbon.pickle-listen", "{carbon-pickle}", "--influx.udp", "{influx-udp}/udp"]

    def plain():
        for group in (cases_prometheus, cases_influx, cases_graphite, cases_server):
            yield from group.cases()
    yield Variant("plain", QUIET + FOREVER + admin + graphite + listen, plain, {"schemas.conf": schemas},
                  ("carbon", "carbon-pickle", "influx-udp"))
    yield Variant("users", QUIET + ["--influx.auth-enabled", "--influx.shared-secret", "secret"], cases_influx.user_cases)
    yield Variant("users-without-tokens", QUIET + ["--influx.auth-enabled"], cases_influx.token_cases)
    yield Variant("tenants", QUIET + ["--multitenancy", "--web.enable-admin-api", "--config", "{folder}/limits.yaml"] + graphite, cases_server.tenant_cases,
                  {"limits.yaml": LIMITS_OF_TENANT, "schemas.conf": schemas})
    yield Variant("limits", QUIET + TINY + graphite, cases_server.limit_cases, {"schemas.conf": schemas})
    yield Variant("features", QUIET + ["--enable-feature", FEATURES], cases_prometheus.feature_cases)
    yield Variant("origins", QUIET + ["--web.cors.origin", "https?://good.example", "--web.allowed-hosts", "localhost,127.0.0.1,*.allowed.example",
                                        "--influx.prometheus-database", "prom"] + admin,
                  cases_server.origin_cases)
    yield Variant("read-only", ["--self-scrape", "off", "--read-only", "--bucket", "file://{folder}/bucket", "--web.enable-admin-api"] + graphite,
                  cases_server.read_only_cases, {"schemas.conf": schemas}, bucket_of="plain")


class Server:
    """A running variant, in a folder below `root`; to be stopped."""

    def __init__(self, program, variant, root, version):
        self.folder = os.path.join(root, variant.name)
        os.makedirs(self.folder)
        for name, content in variant.files.items():
            with open(os.path.join(self.folder, name), "w") as out:
                out.write(content)
        if variant.bucket_of:
            copy_snapshot(os.path.join(root, variant.bucket_of, "data"), os.path.join(self.folder, "bucket"))
        self.ports = dict(zip(("http",) + variant.listeners, free_ports(1 + len(variant.listeners))))
        words = {name: "127.0.0.1:%d" % port for name, port in self.ports.items()}
        words["folder"] = self.folder
        argv = [program, "serve", "--http", words["http"]]
        if not variant.bucket_of:
            argv += ["--data-dir", os.path.join(self.folder, "data")]
        argv += [filled(flag, words) for flag in variant.flags]
        self.log = os.path.join(self.folder, "log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env=without_settings(os.environ))
        texts = {words[name]: "<%s>" % name for name in self.ports}
        texts.update({self.folder: "<folder>", version: "<version>"})
        self.run = Run(texts)
        if not self.is_ready():
            self.stop()
            raise SystemExit("server %s does not start: %s" % (variant.name, self.last_lines()))

    def is_ready(self):
        client = Client("http://127.0.0.1:%d" % self.ports["http"])
        end = time.monotonic() + READY_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            if client.wait_ready(seconds=1):
                return True
        return False

    def last_lines(self):
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-5:])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def filled(flag, words):
    for name, value in words.items():
        flag = flag.replace("{%s}" % name, value)
    return flag


def without_settings(environment):
    """Settings of the person who runs the kit are not those of its servers."""
    return {name: value for name, value in environment.items() if not name.startswith("CHRONOLITH_")}


def copy_snapshot(data, bucket):
    """Makes the newest snapshot of a data directory a bucket."""
    snapshots = os.path.join(data, "snapshots")
    newest = max(os.scandir(snapshots), key=lambda entry: entry.stat().st_mtime_ns)
    tenants = os.path.join(newest.path, "tenants")
    shutil.copytree(tenants if os.path.isdir(tenants) else newest.path, bucket)


def free_ports(count):
    """Different ports on which nothing listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
