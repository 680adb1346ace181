"""The generated world of `make demo` with a fixed end, for pictures and checks that must be equal on every run."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

END, DAY_BEFORE = "2026-11-20T12:00:00Z", "2026-11-19T12:00:00Z"
SHOP, BILLING = "shop", "billing"
BASE_FLAGS = ["--multitenancy", "--self-scrape=off", "--influx.prometheus-database=prometheus"]
# Samples of that time stay in the head: no flush, no removal of idle series.
FLAGS = BASE_FLAGS + ["--flush-delay=3650d", "--idle-after=0"]
# Samples of that time are flushed to blocks at once.
FLUSHING = BASE_FLAGS + ["--flush-delay=1s", "--flush-small-window=0"]
FLUSHED_WITHIN_S = 120


def load(url, program, services=50, hours=24, end=END, seed=1):
    """Sends the world to a server with FLAGS; returns what `chronolith-demo send --json` prints: counts, start and end of
    the incident (`incident`), of the label with ids (`burst`) and of the devices' outage (`outage`)."""
    args = [program, "send", "--url", url, "--end", end, "--seed", str(seed), "--services", str(services), "--hours", str(hours), "--json"]
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, "%s ended with %d: %s" % (" ".join(args), done.returncode, done.stderr[-2000:])
    return json.loads(done.stdout)


@contextlib.contextmanager
def running(server, folder, flags):
    """A server over a directory; gives its address."""
    port = wire.free_port(11800)
    with open(os.path.join(folder, "server.log"), "a") as log:
        command = [server, "serve", "--data-dir", os.path.join(folder, "data"), "--http", "127.0.0.1:%d" % port, *flags]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            url = "http://127.0.0.1:%d" % port
            assert wire.Client(url).wait_ready(seconds=60) and process.poll() is None, open(log.name).read()[-2000:]
            yield url
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def two_days(server, program, **world):
    """A server of its own with the world, and with the day before in blocks; gives its address and the facts of `load`."""
    with tempfile.TemporaryDirectory(prefix="chronolith-world-", ignore_cleanup_errors=True) as folder:
        with running(server, folder, FLUSHING) as url:
            load(url, program, end=DAY_BEFORE, **world)
            wait_flushed(url)
        with running(server, folder, FLAGS) as url:
            yield url, load(url, program, **world)


def wait_flushed(url):
    until = time.monotonic() + FLUSHED_WITHIN_S
    while status(url, "storage")["headSeries"] > 0 or not status(url, "tsdb/blocks")["blocks"]:
        assert time.monotonic() < until, "the head was not flushed"
        time.sleep(0.2)


def status(url, name, tenant=SHOP):
    code, _, answer = wire.Client(url).request("GET", "/api/v1/status/" + name, b"", {"X-Scope-OrgID": tenant})
    assert code == 200, (name, code, answer[:300])
    return json.loads(answer)["data"]
