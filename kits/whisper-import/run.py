#!/usr/bin/env python3
"""Import files of the real whisper 1.1.10 and compare every point; export them and read them with whisper.

Makes random files (archives, methods, sparse points, rings that turned, updates), kills
`chronolith import whisper` at random and resumes it, starts the server, and compares all points of all
series with `whisper.fetch` of each archive. Then a second set goes to the running server (`--to`), and
`chronolith export whisper` writes files whose finest archive whisper reads.

whisper is that of the virtual environment of `make graphite-oracle`. Exit code 77: not run, no whisper.
"""
import argparse
import atexit
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

VENV_PYTHON = os.path.expanduser("~/.cache/chronolith-peers/graphite-oracle/venv/bin/python")
try:
    import whisper
except ImportError:
    if os.path.exists(VENV_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(VENV_PYTHON) \
            and not os.environ.get("WHISPER_KIT"):
        os.execve(VENV_PYTHON, [VENV_PYTHON] + sys.argv, dict(os.environ, WHISPER_KIT="1"))
    whisper = None

RESULTS = []
METHODS = ["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"]


def check(name, why):
    RESULTS.append((name, why is None, why))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A chronolith server."""

    def __init__(self, program, data_dir, log):
        self.port = free_port()
        argv = [program, "serve", "--data-dir", data_dir, "--http", "127.0.0.1:%d" % self.port]
        self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        for _ in range(300):
            try:
                self.query("1", 0)
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def query(self, q, at):
        form = urllib.parse.urlencode({"query": q, "time": at}).encode()
        request = urllib.request.Request(self.url() + "/api/v1/query", form)
        return json.load(urllib.request.urlopen(request))["data"]["result"]

    def points(self, labels, first, last):
        """Points of the series with exactly these labels."""
        quoted = ",".join("%s=%s" % (json.dumps(k), json.dumps(v)) for k, v in sorted(labels.items()))
        found = {}
        for series in self.query("{%s}[%ds]" % (quoted, last - first + 1), last):
            if series["metric"] == labels:
                found.update((t, float(v)) for t, v in series["values"])
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def random_archives(rng):
    """Archives that whisper accepts, the finest first."""
    step = rng.choice([1, 5, 10, 30, 60])
    archives = [(step, rng.randrange(20, 400))]
    for _ in range(rng.randrange(0, 4)):
        last_step, last_count = archives[-1]
        factor = rng.choice([2, 3, 6, 10])
        if last_count < factor:
            break
        step = last_step * factor
        least = last_step * last_count // step + 1
        archives.append((step, least + rng.randrange(0, 200)))
    return archives


def random_value(rng):
    kind = rng.randrange(20)
    if kind == 0:
        return float("nan")
    if kind == 1:
        return rng.choice([float("inf"), float("-inf"), -0.0, 5e-324, 1.7e308])
    return rng.choice([float(rng.randrange(1000)), rng.random() * 1e6, -rng.random()])


def make_file(rng, path, now):
    """A file with a history of updates up to about `now`."""
    archives = random_archives(rng)
    whisper.create(path, list(archives), rng.choice([0.0, 0.1, 0.5, 1.0]), rng.choice(METHODS))
    longest = max(step * count for step, count in archives)
    fine_retention = archives[0][0] * archives[0][1]
    span = longest * rng.choice([1, 2, 3]) if rng.random() < 0.8 else fine_retention
    clock = now - span
    density = rng.choice([1.0, 0.5, 0.05])
    parts = rng.randrange(1, 12)
    for part in range(parts):
        clock += span // parts if part + 1 < parts else now - clock - rng.randrange(0, fine_retention // 2)
        times = [clock - back for back in range(0, min(span // parts + 1, 4 * fine_retention), archives[0][0])]
        points = [(t, random_value(rng)) for t in times if rng.random() < density]
        if rng.random() < 0.3:
            # Points of any age, also such that go to coarse archives alone.
            points += [(clock - rng.randrange(longest), random_value(rng)) for _ in range(20)]
        points.append((clock, random_value(rng)))
        whisper.update_many(path, points, now=clock)
    return archives


def series_of(relative):
    """Labels of a file."""
    stem = relative[:-len(".wsp")]
    if not stem.startswith("_tagged/"):
        return {"__name__": stem.replace("/", ".")}
    name, *tags = stem.split("/")[-1].replace("_DOT_", ".").split(";")
    return dict([("__name__", name)] + [tag.split("=", 1) for tag in tags])


def expected(path, archives, now):
    """All points that whisper returns, finest archive first; None if the newest time is not known."""
    def fetch(step, count, at):
        got = whisper.fetch(path, at - step * count, at, now=at, archiveToSelect=step)
        (start, _, step), values = got
        return {start + i * step: v for i, v in enumerate(values) if v is not None}
    # Values of NaN have times too.
    newest = max((max(fetch(step, count, now), default=0) for step, count in archives), default=0)
    points, covered_from = {}, math.inf
    for step, count in archives:
        valid = {t: v for t, v in fetch(step, count, newest).items() if not math.isnan(v)}
        points.update((t, v) for t, v in valid.items() if t < covered_from)
        covered_from = min([covered_from] + list(valid))
    return points


def make_set(rng, root, name, count, now):
    """Files below a node `name`, with the points that whisper returns."""
    wanted = {}
    for number in range(count):
        if rng.random() < 0.2:
            relative = "_tagged/%03x/%03x/%s_DOT_used;host=h%d;dc=%s.wsp" % (
                rng.randrange(4096), rng.randrange(4096), name, number, rng.choice("xy"))
        else:
            relative = "%s/dir%d/host%d/m%d.wsp" % (name, number % 7, number % 31, number)
        path = os.path.join(root, relative)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        archives = make_file(rng, path, now)
        wanted[relative] = expected(path, archives, now)
    return wanted


def same(a, b):
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def differences(server, wanted, now):
    """Number of points that differ, and the first of them."""
    count, first = 0, None
    for relative, points in wanted.items():
        start = min(points, default=now)
        found = server.points(series_of(relative), start - 3600, now + 3600)
        for t in sorted(set(points) | set(found)):
            if t not in points or t not in found or not same(points[t], found[t]):
                count += 1
                first = first or "%s at %s: %s, imported %s" % (relative, t, points.get(t), found.get(t))
    return count, first


def run_import(args, *more):
    return subprocess.run([args.chronolith, "import", "whisper"] + list(more), capture_output=True, text=True)


def kill_and_resume(rng, args, source, data_dir):
    """Kills imports after random times, then completes one."""
    argv = [args.chronolith, "import", "whisper", source, "--data-dir", data_dir]
    killed = 0
    for _ in range(args.kills):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.random() * args.kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    return killed, run_import(args, source, "--data-dir", data_dir)


def check_export(args, root, data_dir, wanted, now):
    """Reads exported files with whisper."""
    out = os.path.join(root, "out")
    argv = [args.chronolith, "export", "whisper", out, "--data-dir", data_dir, "--retentions", "10s:1d,1m:7d,1h:5y"]
    done = subprocess.run(argv, capture_output=True, text=True)
    check("export: exit code", None if done.returncode == 0 else done.stdout + done.stderr)
    why, compared = None, 0
    for relative, points in wanted.items():
        if relative.startswith("_tagged"):
            continue
        path = os.path.join(out, relative)
        steps = {}
        for t in sorted(points):
            if t > now - 86000:
                steps[int(t) // 10 * 10] = points[t]
        at = int(time.time())
        (start, _, step), values = whisper.fetch(path, at - 86400, at, now=at, archiveToSelect=10)
        found = {start + i * step: v for i, v in enumerate(values) if v is not None}
        for t, v in steps.items():
            compared += 1
            if t not in found or not same(found[t], v):
                why = why or "%s at %d: %s, exported %s" % (relative, t, v, found.get(t))
        info = whisper.info(path)
        if [(a["secondsPerPoint"], a["points"]) for a in info["archives"]] != [(10, 8640), (60, 10080), (3600, 43800)]:
            why = why or "%s: %s" % (relative, info)
    check("export: %d points of the finest archive read by whisper" % compared, why)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chronolith", default="target/release/chronolith")
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--kill-after", type=float, default=0.3, help="longest time before a kill in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the directories")
    args = parser.parse_args()
    if whisper is None:
        print("not run: whisper is missing, `make graphite-oracle` installs it")
        sys.exit(77)
    root = tempfile.mkdtemp(prefix="whisper-import-")
    rng = random.Random(args.seed)
    now = int(time.time())
    log = open(os.path.join(root, "log"), "w")
    source, data_dir = os.path.join(root, "whisper"), os.path.join(root, "data")
    wanted = make_set(rng, source, "first", args.files, now)
    count = sum(map(len, wanted.values()))
    killed, done = kill_and_resume(rng, args, source, data_dir)
    check("import: exit code", None if done.returncode == 0 else done.stdout + done.stderr)
    again = run_import(args, source, "--data-dir", data_dir)
    check("a second import brings nothing",
          None if ": 0 points of 0 files" in again.stdout else again.stdout + again.stderr)
    dry = run_import(args, source, "--dry-run")
    check("dry run: points", None if ": %d points of %d files" % (count, args.files) in dry.stdout
          else "%d wanted: %s" % (count, dry.stdout[-500:]))
    server = Server(args.chronolith, data_dir, log)
    differ, first = differences(server, wanted, now)
    check("%d points of %d files after %d kills: %d differ" % (count, args.files, killed, differ), first)
    # A second set, sent to the running server.
    source = os.path.join(root, "sent")
    sent = make_set(rng, source, "sent", max(args.files // 10, 1), now)
    done = run_import(args, source, "--to", server.url(), "--tenant", "anonymous",
                      "--state", os.path.join(root, "state.json"))
    check("import to a server: exit code", None if done.returncode == 0 else done.stdout + done.stderr)
    differ, first = differences(server, sent, now)
    check("%d points of %d files sent: %d differ" % (sum(map(len, sent.values())), len(sent), differ), first)
    server.stop()
    wanted.update(sent)
    check_export(args, root, data_dir, wanted, now)
    if args.keep:
        print("kept " + root)
    else:
        shutil.rmtree(root)
    for name, passed, why in RESULTS:
        print("passed " + name if passed else "FAILED %s: %s" % (name, str(why)[:2000]))
    failed = sum(not passed for _, passed, _ in RESULTS)
    print("%d passed, %d failed" % (len(RESULTS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
