"""The generated world of `make demo` with a fixed end, for pictures and checks that must be equal on every run."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

END = "2026-11-20T12:00:00Z"
SHOP, BILLING = "shop", "billing"
# Samples of that time stay in the head: no flush, no removal of idle series, no samples of the server's own.
FLAGS = ["--multitenancy", "--self-scrape=off", "--flush-delay=3650d", "--idle-after=0", "--influx.prometheus-database=prometheus"]


def load(url, program, services=50, hours=24, end=END, seed=1):
    """Sends the world to a server with FLAGS; returns what `chronolith-demo send --json` prints: counts, start and end of
    the incident (`incident`), of the label with ids (`burst`) and of the devices' outage (`outage`)."""
    args = [program, "send", "--url", url, "--end", end, "--seed", str(seed), "--services", str(services), "--hours", str(hours), "--json"]
    done = subprocess.run(args, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, "%s ended with %d" % (" ".join(args), done.returncode)
    return json.loads(done.stdout)


@contextlib.contextmanager
def served(server, program, flags=(), **world):
    """A server of its own with the world; gives its address and the facts of `load`."""
    folder = tempfile.mkdtemp(prefix="chronolith-world-")
    port = wire.free_port(11800)
    log = open(os.path.join(folder, "server.log"), "w")
    command = [server, "serve", "--data-dir", os.path.join(folder, "data"), "--http", "127.0.0.1:%d" % port, *FLAGS, *flags]
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        url = "http://127.0.0.1:%d" % port
        assert wire.Client(url).wait_ready(seconds=60) and process.poll() is None, open(log.name).read()[-2000:]
        yield url, load(url, program, **world)
    finally:
        process.terminate()
        process.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
