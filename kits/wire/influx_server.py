"""A server with InfluxDB's HTTP API as a process: this server or a real influxd, started and asked by kits.

Not here: configuration of a server (each kit has its own), comparison of answers.
"""
import atexit
import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process that is ready to answer; it is killed when the kit ends."""

    def __init__(self, argv, port, log):
        self.port = port
        self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        for _ in range(600):
            try:
                # A server that still reads its log answers 503.
                urllib.request.urlopen(self.url("/query?q=SHOW+DATABASES"))
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise SystemExit("%s does not answer" % argv[0])

    def url(self, path):
        return "http://127.0.0.1:%d%s" % (self.port, path)

    def query(self, q, db="d"):
        """The series of all statements; RuntimeError with the server's text if one fails."""
        form = urllib.parse.urlencode({"q": q, "db": db, "epoch": "ns"}).encode()
        try:
            answer = json.load(urllib.request.urlopen(urllib.request.Request(self.url("/query"), form)))
        except urllib.error.HTTPError as error:
            raise RuntimeError("%s: %s" % (q, error.read().decode()))
        for result in answer["results"]:
            if "error" in result:
                raise RuntimeError("%s: %s" % (q, result["error"]))
        return [series for result in answer["results"] for series in result.get("series", [])]

    def write(self, lines, rp="", db="d", precision="ns"):
        params = urllib.parse.urlencode({"db": db, "rp": rp, "precision": precision})
        body = "\n".join(lines).encode()
        try:
            urllib.request.urlopen(urllib.request.Request(self.url("/write?" + params), body)).read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode())

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()
