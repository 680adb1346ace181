#!/usr/bin/env python3
"""Graphs of 300,000 points in the pages of Chronolith, Prometheus and VictoriaMetrics: the same series, one server and one
page after the other, several rounds. Prints and writes a report with all runs; no limits, since machines differ.

    peers.py --server PROGRAM --prometheus PROGRAM --prometheus-ui FOLDER --victoria-metrics PROGRAM --out FILE.md

FOLDER has `static/mantine-ui`, the built interface of Prometheus, which a binary built by `go build` lacks.
All three pages draw with uPlot, so one selector finds their plots. Not here: limits of this page (speed.py)."""
import argparse
import contextlib
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire
from driver import FLAGS
from playwright.sync_api import sync_playwright

STEP_S, SERIES_PER_REQUEST, POINTS_PER_REQUEST = 20, 1000, 50
# Metric, series, points of a series; 300,000 points each.
LOADS = (("wide_gauge", 6000, 50), ("long_gauge", 1000, 300))
MOVES = 10
TIMEOUT_MS = 60_000
# The first frame with a plot; long tasks.
WATCH = """window.plotAt = 0; window.tasks = [];
new PerformanceObserver(list => { for (const one of list.getEntries()) tasks.push(one.duration); }).observe({ type: 'longtask', buffered: true });
new MutationObserver(() => { if (!plotAt && document.querySelector('.u-over')) { plotAt = -1; requestAnimationFrame(() => requestAnimationFrame(() => { plotAt = performance.now(); })); } }).observe(document, { childList: true, subtree: true });"""
# Lines on the canvas: each is a path, and counted again when it is drawn again.
LINES = "const stroke = CanvasRenderingContext2D.prototype.stroke; window.strokes = 0; CanvasRenderingContext2D.prototype.stroke = function (path) { if (path) strokes += 1; return stroke.apply(this, arguments); };"
POINTER = """async moves => {
  const over = document.querySelector('.u-over'), box = over.getBoundingClientRect(), begin = performance.now();
  for (let k = 0; k < moves; k++) {
    over.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: box.left + box.width * (0.2 + 0.06 * k), clientY: box.top + box.height * (0.3 + 0.03 * k), movementX: 9, movementY: 4 }));
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - begin;
}"""
# What a page draws of 6,000 series by itself is a part of the comparison; this makes vmui draw all.
VMUI_ALL = "localStorage.setItem('SERIES_LIMITS', JSON.stringify({ value: JSON.stringify({ table: 100, chart: 1e9, code: 1000 }) }));"


@contextlib.contextmanager
def running(command, folder, path):
    port = wire.free_port(12800)
    with open(os.path.join(folder, "log"), "w") as log:
        process = subprocess.Popen([part.replace("PORT", str(port)) for part in command], cwd=folder, stdout=log, stderr=log)
    try:
        url = "http://127.0.0.1:%d" % port
        for _ in range(600):
            with contextlib.suppress(OSError):
                if wire.Client(url).request("GET", path, b"")[0] == 200:
                    break
            assert process.poll() is None, open(os.path.join(folder, "log")).read()[-2000:]
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def requests(end):
    """Bodies of remote write with all series."""
    found = []
    # In order of time, since Prometheus refuses samples an hour before its newest one.
    for name, series, points in sorted(LOADS, key=lambda load: -load[2]):
        for at, first in itertools.product(range(0, points, POINTS_PER_REQUEST), range(0, series, SERIES_PER_REQUEST)):
            some = [({"__name__": name, "idx": "%04d" % s, "job": "api"}, [((end - STEP_S * (points - 1 - k)) * 1000, float((s * 37 + k * (s % 7 + 1)) % 1000)) for k in range(at, at + POINTS_PER_REQUEST)]) for s in range(first, first + SERIES_PER_REQUEST)]
            found.append(wire.snappy_literal(wire.encode_rw1(some)))
    return found


def write(url, bodies):
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}
    for body in bodies:
        status, _, answer = wire.Client(url).request("POST", "/api/v1/write", body, headers)
        assert status in (200, 204), (url, status, answer[:300])


def addresses(name, points, end):
    """Addresses of a graph in each page."""
    seconds, at = STEP_S * (points - 1), time.gmtime(end)
    text = "%dm%ds" % divmod(seconds, 60)
    common = {"g0.expr": name, "g0.range_input": text}
    ours = {**common, "g0.end_input": time.strftime("%Y-%m-%d %H:%M:%S", at), "g0.step_input": str(STEP_S)}
    prometheus = {**common, "g0.end_input": time.strftime("%Y-%m-%d %H:%M:%S", at), "g0.tab": "graph", "g0.res_type": "fixed", "g0.res_step": str(STEP_S)}
    vmui = {**common, "g0.end_input": time.strftime("%Y-%m-%dT%H:%M:%S", at), "g0.step_input": "%ds" % STEP_S, "g0.relative_time": "none", "g0.tab": "0"}
    return {"chronolith": "/?" + urllib.parse.urlencode(ours), "chronolith, 1,000": "/?" + urllib.parse.urlencode({**ours, "g0.series_max": "1000"}), "prometheus": "/query?" + urllib.parse.urlencode(prometheus),
            "vmui": "/vmui/?#/?" + urllib.parse.urlencode(vmui), "vmui, all": "/vmui/?#/?" + urllib.parse.urlencode(vmui)}


def visit(browser, url, is_all):
    """Figures of one visit by a new profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
    page = context.new_page()
    page.add_init_script(LINES + WATCH + (VMUI_ALL if is_all else ""))
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url)
    page.locator(".u-over").first.wait_for(timeout=TIMEOUT_MS)
    until = time.monotonic() + TIMEOUT_MS / 1000
    while page.evaluate("plotAt") <= 0:
        assert time.monotonic() < until, "no plot: " + url
        page.wait_for_timeout(20)
    answered = page.evaluate("Math.max(...performance.getEntriesByType('resource').filter(e => e.name.includes('query_range')).map(e => e.responseEnd))")
    graph, lines = page.evaluate("[plotAt, strokes]")
    assert graph >= answered > 0, ("the plot is older than its data", graph, answered)
    page.wait_for_timeout(500)
    pointer = page.evaluate(POINTER, MOVES)
    longest = page.evaluate("Math.max(0, ...tasks)")
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    nodes = page.evaluate("document.querySelectorAll('*').length")
    context.close()
    return {"first graph, ms": graph, "answer, ms": answered, "%d moves, ms" % MOVES: pointer, "longest task, ms": longest, "heap, MB": metrics["JSHeapUsedSize"] / 1e6, "nodes": nodes, "kB": sum(sizes) / 1000, "requests": len(sizes), "lines until then": lines}


def version(program, *flags):
    done = subprocess.run([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.split("\n")[0].strip()


def measure(args, lines):
    end = int(time.time()) // STEP_S * STEP_S - STEP_S
    bodies = requests(end)
    commands = {
        "chronolith": ([os.path.abspath(args.server), "serve", "--data-dir", "data", "--http", "127.0.0.1:PORT", "--carbon.listen", "127.0.0.1:0", "--self-scrape=off"], "/-/ready"),
        "prometheus": ([os.path.abspath(args.prometheus), "--config.file=p.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:PORT", "--web.enable-remote-write-receiver"], "/-/ready"),
        "vmui": ([os.path.abspath(args.victoria_metrics), "-storageDataPath=data", "-httpListenAddr=127.0.0.1:PORT", "-retentionPeriod=100y", "-search.latencyOffset=0s"], "/health"),
    }
    with contextlib.ExitStack() as stack, sync_playwright() as playwright:
        urls = {}
        for name, (command, path) in commands.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chronolith-peers-", ignore_cleanup_errors=True))
            open(os.path.join(folder, "p.yml"), "w").write("global: {}\n")
            if name == "prometheus":
                os.symlink(os.path.join(os.path.abspath(args.prometheus_ui), "static"), os.path.join(folder, "static"))
            urls[name] = stack.enter_context(running(command, folder, path))
            write(urls[name], bodies)
            print("written:", name, flush=True)
        browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS)
        lines.append("- chromium %s, 1280x900, a new profile per visit" % browser.version)
        for metric, series, points in LOADS:
            found = {}
            for _ in range(args.rounds):
                for kind, path in addresses(metric, points, end).items():
                    found.setdefault(kind, []).append({**visit(browser, urls[kind.split(",")[0]] + path, kind == "vmui, all"), "load": os.getloadavg()[0]})
                    print(metric, kind, {name: round(value) for name, value in found[kind][-1].items()}, flush=True)
            report(lines, "%d series, %d points each" % (series, points), found)
        browser.close()


def report(lines, title, found):
    names = list(next(iter(found.values()))[0])
    lines += ["", "## " + title, "", "| median (all runs) | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    for name in names:
        lines.append("| %s | %s |" % (name, " | ".join("%.0f (%s)" % (statistics.median(run[name] for run in runs), ", ".join("%.0f" % run[name] for run in runs)) for runs in found.values())))
    print("\n".join(lines), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--server", "--prometheus", "--prometheus-ui", "--victoria-metrics", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    lines = ["# Graph pages, %s" % time.strftime("%Y-%m-%d"), "", "- core_count: %d" % os.cpu_count(), "- kernel: %s %s" % (platform.system(), platform.release()), "- load average at the start: %s" % " ".join("%.2f" % one for one in os.getloadavg()),
             "- command: kits/browser/peers.py --rounds %d" % args.rounds, "- %s; %s; %s" % (version(args.server, "--version"), version(args.prometheus, "--version"), version(args.victoria_metrics, "--version"))]
    measure(args, lines)
    lines.append("\n- load average at the end: %s" % " ".join("%.2f" % one for one in os.getloadavg()))
    with open(args.out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
