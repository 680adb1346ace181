"""Servers, Alertmanagers, checks and figures of processes that the kits of rules share."""
import atexit
import base64
import calendar
import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

DIFFERENCES_SHOWN = 5
# What the end of the kit takes down.
PROCESSES, DIRECTORIES = [], []


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, differences, count):
        """Fails if there are differences, or if nothing was compared."""
        differences = list(differences)
        if differences or not count:
            self.failed += 1
            print("FAIL %s: %d differ of %d" % (what, len(differences), count))
            for difference in differences[:DIFFERENCES_SHOWN]:
                print("     %s" % (difference,))
        else:
            self.passed += 1
            print("ok   %s: %d" % (what, count))
        sys.stdout.flush()

    def expect(self, what, condition, shown=""):
        self.check(what, [] if condition else [shown], 1)

    def end(self):
        """Ends the kit. Its threads wait in sockets, so the interpreter is not taken down."""
        print("%d passed, %d failed" % (self.passed, self.failed), flush=True)
        clean()
        os._exit(1 if self.failed else 0)


def note(text):
    print("     " + text, flush=True)


def work_directory(keep=None):
    """A directory that is removed at the end, or one that stays."""
    if keep:
        os.makedirs(keep, exist_ok=True)
        return keep
    directory = tempfile.mkdtemp(prefix="rules-")
    DIRECTORIES.append(directory)
    return directory


@atexit.register
def clean():
    for process in PROCESSES:
        end(process)
    for directory in DIRECTORIES:
        shutil.rmtree(directory, ignore_errors=True)


def spawn(command, log):
    """Starts a process that ends with the kit."""
    process = subprocess.Popen(command, stdout=open(log, "ab"), stderr=subprocess.STDOUT)
    PROCESSES.append(process)
    return process


def end(process, how=signal.SIGKILL):
    if process.poll() is None:
        process.send_signal(how)
    process.wait()


class Server:
    """A server over one port; `restart` starts the same command again."""

    def __init__(self, name, command, port, log):
        self.name, self.command, self.port, self.log = name, command, port, log
        self.client = wire.Client("http://127.0.0.1:%d" % port)
        self.process = None

    def launch(self):
        self.process = spawn(self.command, self.log)
        self.client.conn = None

    def start(self, seconds=60):
        self.launch()
        is_ready = wait_until(lambda: self.process.poll() is not None or self.client.wait_ready(seconds=0.2), seconds)
        if not is_ready or self.process.poll() is not None:
            # The directory with the log may be a temporary one.
            raise SystemExit("%s does not start: %s" % (self.name, self.log_text()[-2000:]))
        return self

    def kill(self):
        end(self.process)

    def stop(self):
        end(self.process, signal.SIGTERM)

    def get(self, path, **params):
        status, answer = self.client.api(path, params, post=path.endswith(("/query", "/query_range")))
        assert status == 200 and answer.get("status") == "success", (self.name, path, status, answer)
        return answer["data"]

    def value(self, query, **params):
        """The value of a query with one result, or None."""
        result = self.get("/api/v1/query", query=query, **params)["result"]
        return float(result[0]["value"][1]) if result else None

    def write(self, series):
        status, _, text = self.client.write(series)
        assert status in (200, 204), (self.name, status, text)

    def metrics(self):
        """Samples of /metrics: metric with its labels as they are printed to value."""
        status, _, body = self.client.request("GET", "/metrics")
        assert status == 200, (self.name, status)
        found = {}
        for line in body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def metric_sum(self, name, containing=""):
        """Sum of all series of a metric whose labels have a text."""
        return sum(value for key, value in self.metrics().items() if re.split(r"[{ ]", key)[0] == name and containing in key)

    def reload(self):
        status, _, text = self.client.request("POST", "/-/reload")
        return status, text.decode("utf-8", "replace")

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()


def chronolith(binary, directory, port, *flags):
    """Server over `DIRECTORY/ours` without series of its own."""
    command = [binary, "serve", "--data-dir", directory + "/ours", "--http", "127.0.0.1:%d" % port, "--self-scrape", "off", "--web.enable-lifecycle", *flags]
    return Server("ours", command, port, directory + "/ours.log")


def prometheus(binary, directory, port, config, *flags):
    command = [
        binary, "--config.file", config, "--storage.tsdb.path", directory + "/prometheus", "--web.listen-address",
        "127.0.0.1:%d" % port, "--web.enable-remote-write-receiver", "--web.enable-lifecycle", *flags,
    ]
    return Server("prometheus", command, port, directory + "/prometheus.log")


def find_alertmanager():
    return os.environ.get("ALERTMANAGER") or shutil.which("prometheus-alertmanager")


def milliseconds(text):
    """Milliseconds of a time of RFC 3339 in UTC, digits below cut."""
    whole, fraction = re.match(r"([^.Z]*)(?:\.(\d+))?Z", text).groups()
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000 + int(((fraction or "") + "000")[:3])


def now_ms():
    return int(time.time() * 1000)


class Receiver:
    """An HTTP server that keeps the JSON of each POST with the time of its arrival: an Alertmanager, or a webhook."""

    def __init__(self, port):
        received = self.received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append((now_ms(), json.loads(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.port = wire.free_port(port)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        # Connections of killed servers.
        self.server.handle_error = lambda *args: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def alerts(self):
        """Arrival in milliseconds and alert, in order."""
        return [(at, alert) for at, body in list(self.received) for alert in body]


def label_key(labels):
    return tuple(sorted(labels.items()))


class Alertmanager:
    """A real Alertmanager."""

    def __init__(self, binary, directory, port, webhook=None, web_config=None, group_wait="1s"):
        self.port, self.directory = port, os.path.join(directory, "alertmanager-%d" % port)
        os.makedirs(self.directory, exist_ok=True)
        config = os.path.join(self.directory, "alertmanager.yml")
        receiver = "{name: all, webhook_configs: [{url: 'http://127.0.0.1:%d/', send_resolved: true}]}" % webhook if webhook else "{name: all}"
        with open(config, "w") as file:
            file.write("route: {receiver: all, group_by: [alertname], group_wait: %s, group_interval: 1s}\nreceivers: [%s]\n" % (group_wait, receiver))
        self.command = [
            binary, "--config.file=" + config, "--storage.path=" + self.directory, "--web.listen-address=127.0.0.1:%d" % port,
            "--cluster.listen-address=",
        ]
        if web_config:
            self.command.append("--web.config.file=" + web_config)
        self.scheme = "https" if web_config else "http"
        self.process = None

    def start(self):
        self.process = spawn(self.command, os.path.join(self.directory, "log"))
        deadline = time.time() + 30
        while self.get("status") is None:
            assert time.time() < deadline, "Alertmanager is not ready, see %s/log" % self.directory
            time.sleep(0.05)
        return self

    def get(self, path):
        """JSON of a path of the API; None if there is no answer."""
        request = urllib.request.Request("%s://127.0.0.1:%d/api/v2/%s" % (self.scheme, self.port, path))
        request.add_header("Authorization", "Basic " + base64.b64encode(b"alice:secret").decode())
        insecure = ssl.create_default_context()
        insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=10, context=insecure) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def firing(self):
        """Alerts that fire, by labels."""
        return {label_key(alert["labels"]): alert for alert in self.get("alerts?active=true") or []}


def rss_mib(pid):
    """Resident memory, and its peak."""
    with open("/proc/%d/status" % pid) as file:
        text = file.read()
    return tuple(int(re.search(name + r":\s+(\d+) kB", text).group(1)) / 1024 for name in ("VmRSS", "VmHWM"))


def reset_peak(pid):
    """Begins a new peak of resident memory."""
    with open("/proc/%d/clear_refs" % pid, "w") as file:
        file.write("5")


def cpu_seconds(pid):
    """CPU of a process so far, user and system."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition, seconds, pause=0.02):
    """Returns true once the condition holds."""
    deadline = time.time() + seconds
    while not condition():
        if time.time() > deadline:
            return False
        time.sleep(pause)
    return True


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")
