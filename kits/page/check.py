#!/usr/bin/env python3
"""Open the web page of a server in a headless Chromium, and check what it shows of floats and native histograms."""
import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--enable-logging=stderr", "--v=0", "--window-size=1240,900", "--virtual-time-budget=4000"]
RUN = "r%x" % int(time.time() * 1000)  # a label of this run, so that runs can repeat
STEP_MS, COUNT = 15000, 20
RESULTS = []


def write(url):
    """Floats, exponential histograms on both sides of zero, one with custom bounds."""
    now = int(time.time() * 1000) // STEP_MS * STEP_MS
    times = [now - (COUNT - 1 - k) * STEP_MS for k in range(COUNT)]

    def native(k):
        pos, neg = {-8: 1.0 + k, 0: 4.0 + 2 * k, 1: 2.0, 9: 1.0}, {2: 1.0}
        return wire.FH(1, 10.5 * k, sum(pos.values()) + sum(neg.values()) + 3, 3.0, 0.001, (), pos, neg)

    def custom(k):
        return wire.FH(-53, 2.0 * k, 7.0 + k, 0, 0, [0.5, 1, 2.5], {0: 2.0, 1: 4.0 + k, 3: 1.0})

    def series(name, job, value):
        labels = {"__name__": name, "job": job, "run": RUN}
        return labels, [(t, value(k)) for k, t in enumerate(times)]

    body = wire.encode_rw1([
        series("page_one", "a", native), series("page_custom", "a", custom),
        series("page_two", "a", native), series("page_two", "b", native),
        series("page_mixed", "h", native), series("page_mixed", "f", float),
        series("page_floats", "a", float), series("page_floats", "b", lambda k: 2.5 * k),
    ])
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    status, _, answer = wire.Client(url).request("POST", "/api/v1/write", wire.snappy_literal(body), headers)
    assert status in (200, 204), (status, answer)


class Page:
    def __init__(self, args):
        self.args = args

    def chromium(self, address, *flags):
        with tempfile.TemporaryDirectory() as profile:
            command = [self.args.chromium, *FLAGS, "--user-data-dir=" + profile, *flags, address]
            return subprocess.run(command, capture_output=True, timeout=120)

    def open(self, name, query, tab):
        """Text of the results, markup of the results, script errors."""
        parts = {"q": query, "tab": tab, "range": "15m"}
        address = self.args.url.rstrip("/") + "/#" + urllib.parse.urlencode(parts)
        done = self.chromium(address, "--dump-dom")
        dom = done.stdout.decode()
        if self.args.shots:
            for look, flags in ("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",)):
                self.chromium(address, "--screenshot=%s/%s-%s.png" % (self.args.shots, name, look), *flags)
        found = re.search(r'<div id="out".*?</section>', dom, re.S)
        markup = found.group(0) if found else dom
        errors = [line for line in done.stderr.decode(errors="replace").splitlines() if "Uncaught" in line]
        text = html.unescape(re.sub(r"<(?!title)[^>]*>", " ", markup))
        return re.sub(r"\s+", " ", text), markup, errors


def check(page, name, query, tab, want=(), unwanted=(), marks=()):
    """`want` and `unwanted` are parts of the text, `marks` maps parts of the markup to how often they occur."""
    text, markup, errors = page.open(name, query.replace("}", ',run="%s"}' % RUN), tab)
    faults = ["script error: " + error for error in errors]
    faults += ["no %r" % part for part in want if part not in text]
    faults += ["there is %r" % part for part in unwanted if part in text]
    faults += ["%r occurs %d times, not %d" % (part, markup.count(part), count)
               for part, count in marks if markup.count(part) != count]
    RESULTS.append(not faults)
    print("%-4s %s%s" % ("FAIL" if faults else "ok", name, ": " + "; ".join(faults) + " in " + text[:600] if faults else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--shots")
    args = parser.parse_args()
    write(args.url)
    page = Page(args)
    bar, heat, line = 'class="bar"', 'class="heat"', "stroke-linejoin"
    check(page, "table-native", 'page_one{job="a"}', "table",
          ["count 69 , sum 199.5", "<title>(0.7071067811865475, 1]: 42", "<title>[-0.001, 0.001]: 3",
           "<title>[-2, -1.414213562373095): 1"], marks=[(bar, 6)])
    check(page, "table-custom", 'page_custom{job="a"}', "table",
          ["count 26 , sum 38", "<title>[-Inf, 0.5]: 2", "<title>(0.5, 1]: 23", "<title>(2.5, +Inf]: 1"],
          marks=[(bar, 3)])
    check(page, "table-range", 'page_custom{job="a"}[3m]', "table", ["count 26 ", "count 25 ", "count 24 "])
    check(page, "table-mixed", 'page_mixed{job=~".+"}', "table", ['job = "f"', " 19 ", "count 69 "], marks=[(bar, 6)])
    check(page, "table-floats", 'page_floats{job="b"}', "table", [" 47.5 "], ["count"], [(bar, 0)])
    check(page, "graph-native", 'page_one{job="a"}', "graph", ['page_one{job="a"', "42 per bucket"], ["native histograms"],
          [(line, 0)])
    check(page, "graph-custom", 'page_custom{job="a"}', "graph", ["23 per bucket"], marks=[(line, 0)])
    check(page, "graph-rate", 'rate(page_one{job="a"}[1m])', "graph", ["per bucket"], marks=[(line, 0)])
    check(page, "graph-two", 'page_two{job=~".+"}', "graph",
          ["2 series have native histograms, drawn as lines of their counts of observations"], marks=[(heat, 0), (line, 2)])
    check(page, "graph-mixed", 'page_mixed{job=~".+"}', "graph",
          ["1 series has native histograms, which are not drawn among floats"], marks=[(heat, 0), (line, 1)])
    check(page, "graph-floats", 'page_floats{job=~".+"}', "graph", ['page_floats{job="a"'], ["histogram"],
          [(heat, 0), (line, 2)])
    passed = sum(RESULTS)
    print("%d passed, %d failed" % (passed, len(RESULTS) - passed))
    return 0 if passed == len(RESULTS) else 1


if __name__ == "__main__":
    sys.exit(main())
