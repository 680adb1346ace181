#!/usr/bin/env python3
"""The real graphite-web 1.1.10 with Chronolith in CLUSTER_SERVERS and as its tag database.

Fills a server with carbon lines, starts graphite-web on a loopback port for
each way in which it asks a cluster server (pickle, MessagePack, POST, two
servers with the same series), and compares every answer through graphite-web
with the direct one.
"""
import argparse
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

VENV = os.path.expanduser("~/.cache/chronolith-peers/graphite-oracle/venv")
RESULTS = []
NOW = 1_700_000_000
STEP = 10
RANGE = {"from": NOW - 600, "until": NOW}

# Settings and server of graphite-web: everything in one directory, no caches, no carbon.
SETTINGS = """
from graphite.settings import *  # noqa
SECRET_KEY = "kit"
STORAGE_DIR = LOG_DIR = CONF_DIR = WHISPER_DIR = {dir!r}
STANDARD_DIRS = []
INDEX_FILE = {dir!r} + "/index"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {dir!r} + "/graphite.db"}}}}
CACHES = {{"default": {{"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}}}
TAGDB_CACHE_DURATION = FIND_CACHE_DURATION = DEFAULT_CACHE_DURATION = 0
DEFAULT_CACHE_POLICY = []
ALLOWED_HOSTS = ["*"]
TIME_ZONE = "UTC"
USE_TZ = True
ROOT_URLCONF = "graphite.urls"
LOG_ROTATION = False
LOG_FILE_INFO = LOG_FILE_EXCEPTION = LOG_FILE_CACHE = LOG_FILE_RENDERING = "-"
STORAGE_FINDERS = ["graphite.finders.remote.RemoteFinder"]
CARBONLINK_HOSTS = []
CLUSTER_SERVERS = {servers!r}
REMOTE_STORE_USE_POST = {post!r}
REMOTE_RETRY_DELAY = 0
TAGDB = "graphite.tags.http.HttpTagDB"
TAGDB_HTTP_URL = {url!r}
TAGDB_HTTP_AUTOCOMPLETE = True
"""

SERVER = """
import os, sys, warnings
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
warnings.simplefilter("ignore")
sys.path.insert(0, {dir!r})
os.environ["DJANGO_SETTINGS_MODULE"] = "kit_settings"
if {hide_msgpack!r}:
    # graphite-web passes an argument that msgpack 1.0 and later refuse; without it, it uses its own reader.
    sys.modules["msgpack"] = None
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
from django.core.wsgi import get_wsgi_application

class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass

make_server("127.0.0.1", {port}, get_wsgi_application(), Server, Quiet).serve_forever()
"""

# Requests of which both answers must be equal: path, parameters, method.
REQUESTS = [
    ("/render", {"target": "dc.*.cpu", "format": "json", **RANGE}, "GET"),
    ("/render", {"target": ["sumSeries(dc.*.cpu)", "dc.b.mem"], "format": "json", **RANGE}, "GET"),
    ("/render", {"target": "aliasByNode(dc.{a,b}.cpu,1)", "format": "json", **RANGE}, "POST"),
    ("/render", {"target": "movingAverage(dc.a.cpu,3)", "format": "json", **RANGE}, "GET"),
    ("/render", {"target": "summarize(dc.a.cpu,'1min','sum')", "format": "json", **RANGE}, "GET"),
    ("/render", {"target": "seriesByTag('name=disk')", "format": "json", **RANGE}, "GET"),
    ("/render", {"target": "groupByTags(seriesByTag('name=disk','host=~.'),'sum','dc')", "format": "json", **RANGE},
     "GET"),
    ("/render", {"target": "disk;dc=ams;host=a", "format": "json", **RANGE}, "GET"),
    ("/render", {"target": "dc.a.*", "format": "json", "maxDataPoints": 7, **RANGE}, "GET"),
    ("/render", {"target": "dc.a.*", "format": "csv", **RANGE}, "GET"),
    ("/render", {"target": "dc.a.*", "format": "raw", **RANGE}, "GET"),
    ("/render", {"target": "no.such.path", "format": "json", **RANGE}, "GET"),
    ("/metrics/find", {"query": "*"}, "GET"),
    ("/metrics/find", {"query": "dc.*", **RANGE}, "POST"),
    ("/metrics/find", {"query": "dc.b.*", "format": "completer"}, "GET"),
    ("/metrics/find", {"query": "dc.b.*", "format": "nodelist"}, "GET"),
    ("/metrics/find", {"query": "none.*"}, "GET"),
    ("/metrics/expand", {"query": "dc.*.cpu"}, "GET"),
    ("/metrics/expand", {"query": ["dc.*", "dc.a.*"], "groupByExpr": 1}, "GET"),
    ("/metrics/index.json", {}, "GET"),
    ("/tags/autoComplete/tags", {}, "GET"),
    ("/tags/autoComplete/tags", {"expr": ["name=disk", "dc=ams"], "tagPrefix": "h"}, "GET"),
    ("/tags/autoComplete/values", {"tag": "host"}, "GET"),
    ("/tags/autoComplete/values", {"tag": "host", "expr": "dc=ams", "limit": 1}, "GET"),
    ("/tags/autoComplete/values", {"tag": "name"}, "GET"),
    ("/tags/findSeries", {"expr": ["name=disk", "host=~a|c"]}, "GET"),
    ("/tags/findSeries", {"expr": "dc!=~x"}, "GET"),
    ("/tags", {}, "GET"),
    ("/tags", {"filter": "h", "pretty": 1}, "GET"),
    ("/tags/dc", {}, "GET"),
    ("/tags/dc", {"filter": "f"}, "GET"),
    ("/tags/nothing", {}, "GET"),
    ("/tags/tagSeries", {"path": "m;b=2;a=1"}, "POST"),
    ("/tags/tagMultiSeries", {"path": ["m;b=2;a=1", "n;c=d"]}, "POST"),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(url, path, params=None, method="GET", body=None):
    """Status and body; JSON is decoded."""
    form = urllib.parse.urlencode(params or {}, doseq=True)
    if method == "POST" and body is None:
        body = form.encode()
        form = ""
    full = url + path + ("?" + form if form else "")
    request = urllib.request.Request(full, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, content = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read().decode()
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content


def start(argv, url, log):
    process = subprocess.Popen(argv, stdout=log, stderr=log)
    atexit.register(process.kill)
    for _ in range(300):
        try:
            if ask(url, "/version")[0] == 200:
                return process
        except OSError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("%s does not answer, see %s" % (argv[0], log.name))


def start_chronolith(binary, root):
    port = free_port()
    url = "http://127.0.0.1:%d" % port
    argv = [binary, "serve", "--data-dir", os.path.join(root, "data"), "--http", "127.0.0.1:%d" % port]
    process = start(argv, url, open(os.path.join(root, "chronolith.log"), "w"))
    for _ in range(300):
        if ask(url, "/-/ready")[0] == 200:
            return process, url
        time.sleep(0.1)
    raise SystemExit("chronolith is not ready")


def fill(url):
    series = ["dc.a.cpu", "dc.b.cpu", "dc.b.mem", "dc.a.with space", "disk;dc=ams;host=a", "disk;dc=ams;host=b",
              "disk;dc=fra;host=c", "load;dc=fra"]
    lines = []
    for index, name in enumerate(series):
        for point in range(0, 120):
            # Some points are missing.
            if (point + index) % 17:
                lines.append("%s %g %d" % (name.replace(" ", "_"), point * (index + 1) / 4, NOW - 1200 + point * STEP))
    status, text = ask(url, "/api/v1/carbon", method="POST", body="\n".join(lines).encode())
    if status != 204:
        raise SystemExit("carbon lines refused: %s %s" % (status, text))


def start_graphite(args, root, name, url, servers, post=False, hide_msgpack=False):
    folder = os.path.join(root, name)
    os.makedirs(folder)
    port = free_port()
    with open(os.path.join(folder, "kit_settings.py"), "w") as file:
        file.write(SETTINGS.format(dir=folder, servers=servers, post=post, url=url))
    with open(os.path.join(folder, "server.py"), "w") as file:
        file.write(SERVER.format(dir=folder, port=port, hide_msgpack=hide_msgpack))
    python = os.path.join(args.venv, "bin/python")
    through = "http://127.0.0.1:%d" % port
    return start([python, os.path.join(folder, "server.py")], through, open(folder + ".log", "w")), through


def ordered(value):
    """Lists of nodes and series have no order of their own in a cluster."""
    if isinstance(value, list) and all(isinstance(item, (dict, str)) for item in value):
        return sorted((ordered(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, dict):
        return {key: ordered(item) for key, item in value.items()}
    if isinstance(value, str) and "\n" in value:
        return sorted(value.splitlines())
    return value


def compare(name, direct_url, through_url):
    for path, params, method in REQUESTS:
        direct = ask(direct_url, path, params, method)
        through = ask(through_url, path, params, method)
        is_equal = direct[0] == through[0] < 500 and ordered(direct[1]) == ordered(through[1])
        text = "%s: %s %s %s" % (name, method, path, urllib.parse.unquote(urllib.parse.urlencode(params, doseq=True)))
        why = None if is_equal else "direct %s, through graphite-web %s" % (str(direct)[:600], str(through)[:600])
        RESULTS.append((text, why))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="target/release/chronolith", help="binary of Chronolith")
    parser.add_argument("--venv", default=VENV, help="virtual environment with graphite-web 1.1.10")
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.venv, "bin/python")):
        print("not run: there is no virtual environment %s (tools/graphite-oracle/run.sh setup)" % args.venv)
        print("0 passed, 0 failed")
        return
    root = tempfile.mkdtemp(prefix="graphite-cluster-")
    process, url = start_chronolith(args.server, root)
    fill(url)
    host = url[len("http://"):]
    for name, servers, options in [
        ("pickle", [host], {}),
        ("POST", [host], {"post": True}),
        ("MessagePack", [host + "?format=msgpack"], {"hide_msgpack": True}),
        ("two servers", [host, host.replace("127.0.0.1", "localhost")], {}),
    ]:
        graphite, through = start_graphite(args, root, name.replace(" ", "-"), url, servers, **options)
        compare(name, url, through)
        graphite.kill()
        graphite.wait()
    process.send_signal(signal.SIGTERM)
    process.wait()
    for name, why in RESULTS:
        if why:
            print("FAILED %s: %s" % (name, why))
    if args.keep:
        print("kept " + root)
    else:
        shutil.rmtree(root)
    failed = sum(1 for _, why in RESULTS if why)
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
