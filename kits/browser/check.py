#!/usr/bin/env python3
"""Drive the web interface of a server in a headless Chromium, and compare what it shows with the API."""
import argparse
import json
import os
import re
import sys
import time
import traceback
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from modules import CHECKS

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
PAGES = ["", "explore", "cardinality", "storage", "queries", "plan", "settings", "alerts"]
FIRST_LOAD_BYTES_MAX = 250_000
READY_MS_MAX = 400
RUN = "r%x" % int(time.time() * 1000)  # a label of this run, so that runs can repeat
STEP_MS, COUNT = 15000, 20
WATCH = "addEventListener('securitypolicyviolation', e => (window.violations ??= []).push(e.violatedDirective + ' ' + e.blockedURI));"
HOSTILE = "<img src=x onerror=alert(1)>"


def write(url):
    """Floats, native histograms (exponential and custom), classic buckets, a hostile label."""
    now = int(time.time() * 1000) // STEP_MS * STEP_MS
    times = [now - (COUNT - 1 - k) * STEP_MS for k in range(COUNT)]

    def native(k):
        pos, neg = {-8: 1.0 + k, 0: 4.0 + 2 * k, 1: 2.0, 9: 1.0}, {2: 1.0}
        return wire.FH(1, 10.5 * k, sum(pos.values()) + sum(neg.values()) + 3, 3.0, 0.001, (), pos, neg)

    def custom(k):
        return wire.FH(-53, 2.0 * k, 7.0 + k, 0, 0, [0.5, 1, 2.5], {0: 2.0, 1: 4.0 + k, 3: 1.0})

    def series(name, value, **labels):
        return {"__name__": name, "run": RUN, **labels}, [(t, value(k)) for k, t in enumerate(times)]

    many = [series("page_many", lambda k, i=i: float(i), idx=str(i)) for i in range(300)]
    body = wire.encode_rw1([
        series("page_one", native, job="a"), series("page_custom", custom, job="a"),
        series("page_floats", float, job="a"), series("page_floats", lambda k: 2.5 * k, job=HOSTILE),
        series("page_bucket", lambda k: 3.0 * k, le="0.1"), series("page_bucket", lambda k: 5.0 * k, le="1"),
        series("page_bucket", lambda k: 6.0 * k, le="+Inf"), *many,
    ])
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    status, _, answer = wire.Client(url).request("POST", "/api/v1/write", wire.snappy_literal(body), headers)
    assert status in (200, 204), (status, answer)


class Browser:
    """One browser; each page has a context of its own and is watched."""

    def __init__(self, playwright, args):
        self.url = args.url.rstrip("/") + "/"
        self.shots = args.shots
        self.browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS)
        self.faults = []

    def open(self, path="", scheme="light", width=1280, height=900, bypass_csp=False):
        context = self.browser.new_context(bypass_csp=bypass_csp, color_scheme=scheme, viewport={"width": width, "height": height}, permissions=["clipboard-read", "clipboard-write"])
        context.set_default_timeout(8000)
        page = context.new_page()
        page.add_init_script(WATCH)
        page.on("request", lambda request: self.watch(request.url))
        page.on("pageerror", lambda error: self.faults.append("script error: %s" % error))
        page.on("console", lambda message: self.faults.append("console: " + message.text) if message.type == "error" and "status of 4" not in message.text else None)
        page.goto(self.url + path)
        page.wait_for_selector("main .panel")
        return page

    def watch(self, address):
        if not address.startswith((self.url, "data:", "blob:" + self.url)):
            self.faults.append("request to another host: " + address)

    def close(self, page):
        found = page.evaluate("window.violations ?? []")
        self.faults += ["policy: " + text for text in found]
        page.context.close()
        faults, self.faults = self.faults, []
        assert not faults, faults

    def get(self, path, **params):
        with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(params)) as answer:
            return json.load(answer)["data"]


def panel(expr, **fields):
    return "?" + urllib.parse.urlencode({"g0." + name: value for name, value in {"expr": expr.replace("}", ',run="%s"}' % RUN), **fields}.items()})


def editor_ready(page):
    page.locator(".editor .cm-content").first.wait_for()


def first_load(browser):
    """At most 250 kB of gzip, ready within 400 ms (the best of three)."""
    browser.close(browser.open())
    best, size = 10_000, 0
    for _ in range(3):
        context = browser.browser.new_context()
        page = context.new_page()
        sizes = []
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        page.goto(browser.url)
        editor_ready(page)
        best = min(best, page.evaluate("performance.getEntriesByName('ready')[0].startTime"))
        size = sum(sizes)
        context.close()
    print("     first load: %d bytes, ready after %.0f ms" % (size, best))
    assert size <= FIRST_LOAD_BYTES_MAX, size
    assert best <= READY_MS_MAX, best


def modules(browser):
    page = browser.open("plan")
    base = page.evaluate("document.querySelector('script[type=module]').src").rsplit("/", 1)[0]
    faults = []
    for path, expression, want in CHECKS:
        found = page.evaluate("async ([path, text]) => { const m = await import(path); return await RUN; }".replace("RUN", expression), [base + "/" + path, expression])
        if found != want:
            faults.append("%s: %s is %r, not %r" % (path, expression, found, want))
    assert not faults, faults
    browser.close(page)


def axe(browser):
    """All rules in the light scheme; in the dark one, which has the same elements, those of colours. On a phone no
    page scrolls sideways."""
    axe = Axe()
    for path in PAGES + [panel('page_floats{job=~".+"}', tab="graph"), panel('page_floats{job=~".+"}', tab="table"), panel('rate(page_floats{job=~".+"}[1m])', tab="plan"), panel('page_one{job="a"}', tab="graph")]:
        # axe adds a style sheet of its own, which the policy would refuse.
        page = browser.open(path, bypass_csp=True)
        if path == "" or path.startswith("?"):
            editor_ready(page)
        page.wait_for_timeout(150)
        for scheme, options in ("light", {"resultTypes": ["violations"]}), ("dark", {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}):
            page.emulate_media(color_scheme=scheme)
            found = axe.run(page, options=options).response["violations"]
            assert not found, "%s %s: %s" % (path, scheme, [(rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0].get("failureSummary", "")[:300]) for rule in found])
        page.set_viewport_size({"width": 360, "height": 740})
        page.wait_for_timeout(100)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, (path, wide)
        browser.close(page)


def shots(browser):
    if not browser.shots:
        return
    os.makedirs(browser.shots, exist_ok=True)
    more = {"graph": panel('page_many{idx=~"1.?"}', range_input="15m"), "table": panel('page_many{idx=~".+"}', tab="table"), "heatmap": panel('page_one{job="a"}', range_input="15m"),
            "plan-tab": panel('sum(rate(page_many{idx=~".+"}[1m])) / count(rate(page_many{idx=~".+"}[1m]))', tab="plan"), "error": panel('sum(page_many{) + ')}
    for scheme in ("light", "dark"):
        for width in (1280, 360):
            for name, path in {**{path or "query": path for path in PAGES}, **more}.items():
                page = browser.open(path, scheme, width, 800)
                page.wait_for_timeout(500)
                page.screenshot(path="%s/%s-%s-%d.png" % (browser.shots, name, scheme, width))
                browser.close(page)


def table(browser):
    page = browser.open(panel('page_floats{job=~".+"}', tab="table"))
    page.get_by_text("47.5").wait_for()
    text = page.locator(".rows table").inner_text()
    assert HOSTILE in text, text
    page.get_by_label("Filter rows").fill("onerror")
    page.get_by_text("1 of 2 rows").wait_for()
    page.get_by_role("button", name="Copy CSV").click()
    page.get_by_text("CSV copied").wait_for()
    assert HOSTILE in page.evaluate("navigator.clipboard.readText()")
    browser.close(page)
    page = browser.open(panel('page_one{job="a"}', tab="table"))
    page.get_by_role("button", name="count 69, sum 199.5").click()
    assert "42" in page.locator(".buckets").inner_text()
    browser.close(page)
    page = browser.open(panel('page_many{idx=~".+"}', tab="table"))
    page.get_by_text("300 rows", exact=True).wait_for()
    assert page.locator(".rows tbody tr").count() < 80, "all rows are in the document"
    page.get_by_role("button", name="value").click()
    page.locator(".rows tbody tr").first.get_by_text("299").first.wait_for()
    browser.close(page)


def graph(browser):
    page = browser.open(panel('page_floats{job=~".+"}', range_input="10m"))
    page.locator(".u-over").wait_for()
    assert HOSTILE in page.locator(".legend").inner_text()
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 80)
    page.locator(".tip").wait_for()
    assert "page_floats" in page.locator(".tip").inner_text()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 80)
    page.mouse.up()
    page.wait_for_url(lambda address: "g0.end_input" in address)
    assert "g0.range_input=1m" in page.url, page.url
    page.go_back()
    page.wait_for_url(lambda address: "g0.range_input=10m" in address)
    for name, part in (("Stacked", "display_mode=stacked"), ("Log", "scale=log")):
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_url(lambda address, part=part: part in address)
    page.get_by_role("button", name="page_floats").first.click()
    assert page.locator(".legend li.off").count() == 1
    browser.close(page)
    page = browser.open(panel('page_many{idx=~".+"}', range_input="10m"))
    page.get_by_text("200 of 300 series are drawn").wait_for()
    page.get_by_label("Choose series").fill('idx="29')
    page.get_by_text("11 of 300 series are drawn").wait_for()
    browser.close(page)


def heatmap(browser):
    """Cells are the buckets of the API, for exponential, custom and classic histograms."""
    base = None
    for expr in ('page_one{job="a"}', 'page_custom{job="a"}', 'page_bucket{le=~".+"}'):
        page = browser.open(panel(expr, range_input="10m", display_mode="heatmap"))
        page.locator("canvas.heat").first.wait_for()
        base = page.evaluate("document.querySelector('script[type=module]').src").rsplit("/", 1)[0]
        query, now = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)["g0.expr"][0], int(time.time())
        # At one moment: 20 samples are stored, and a range that ends now sees the last one.
        cells = page.evaluate("""async ([base, expr]) => {
            const [{ run }, { readPanel }, { sketches }] = await Promise.all(["query/languages.js", "query/panel.js", "query/buckets.js"].map(path => import(base + "/" + path)));
            const panel = readPanel(new URLSearchParams({ "g0.expr": expr, "g0.range_input": "10m" }), 0);
            const { times, series } = await run(panel, new AbortController().signal);
            return sketches(times, series).map(s => s.columns.filter(c => c.total).at(-1).cells.map(c => [String(c.lower), String(c.upper), c.count]));
        }""", [base, query])
        found = browser.get("api/v1/query", query=query, time=now)["result"]
        if "le" in found[0]["metric"]:
            sums = sorted((float(one["metric"]["le"]), float(one["value"][1])) for one in found)
            want = [count - before for (_, count), before in zip(sums, [0] + [count for _, count in sums])]
        else:
            want = [float(bucket[3]) for bucket in found[0]["histogram"][1]["buckets"]]
        assert [cell[2] for cell in cells[0]] == want, (expr, cells, want)
        assert page.locator("canvas.heat").first.evaluate("c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.some((v, i) => i % 4 === 3 && v > 200) }"), "nothing is drawn"
        browser.close(page)


def plan(browser):
    page = browser.open(panel('sum(rate(page_many{idx=~".+"}[1m]))', tab="plan"))
    page.locator("table.plan").wait_for()
    text = page.locator("table.plan").inner_text()
    assert "sum" in text and "rate" in text and "300" in text, text
    page.get_by_role("button", name="Keep for comparison").click()
    page.get_by_role("heading", name="This run").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    browser.close(page)
    found = browser.get("api/v1/query_range", query="sum(rate(page_many[1m]))", start=time.time() - 600, end=time.time(), step=5, explain=1)["explain"]
    page = browser.open("plan")
    page.get_by_label("Line of the slow query log").fill("WARN slow_query: " + json.dumps({"query": "up", "plan": found}))
    page.locator("table.plan").wait_for()
    own = page.evaluate("(plan) => { const sum = n => n.selfMs + n.children.reduce((s, c) => s + sum(c), 0); return sum(plan) / plan.timeMs }", found)
    assert 0.95 <= own <= 1.05, own
    page.get_by_label("Line of the slow query log").fill("no plan")
    page.get_by_role("alert").wait_for()
    browser.close(page)


def errors(browser):
    """The column of the server's parser is marked, and completion asks for what is typed alone."""
    page = browser.open(panel("sum(page_many{) +"))
    page.get_by_role("alert").get_by_text("parse error").wait_for()
    editor_ready(page)
    page.locator(".editor .cm-lintRange-error, .editor .cm-lintPoint").first.wait_for()
    browser.close(page)
    asked = []
    page = browser.open(panel("page_floats{}", tab="table"))
    page.on("request", lambda request: asked.append(urllib.parse.unquote(request.url)))
    editor_ready(page)
    page.locator(".editor .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.type("sum(page_man")
    page.get_by_role("option", name="page_many").wait_for()
    names = [address for address in asked if "__name__/values" in address]
    assert names and all("page" in address or "(?i:.*" in address for address in names), names
    assert all("limit=" in address for address in names), names
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda address: "page_many" in address)
    page.get_by_text("1 rows", exact=True).wait_for()
    browser.close(page)


def languages(browser):
    page = browser.open("?" + urllib.parse.urlencode({"g0.lang": "influxql", "g0.expr": "SHOW DATABASES", "g0.tab": "table"}))
    page.locator(".panel .empty, .rows").first.wait_for()
    browser.close(page)
    page = browser.open("?" + urllib.parse.urlencode({"g0.lang": "graphite", "g0.expr": "constantLine(7)", "g0.range_input": "10m"}))
    page.get_by_role("button", name="7.0", exact=True).wait_for()
    browser.close(page)


def addresses(browser):
    """Prometheus's addresses open the page with their query; a path of InfluxDB's clients stays theirs."""
    for path, want in (("graph?g0.expr=vector(7)&g0.tab=1", "7"), ("query?g0.expr=vector(8)&g0.tab=table", "8"), ("tsdb-status", "Cardinality of the head"), ("flags", "Settings"), ("alerts", "evaluates no rules")):
        page = browser.open(path)
        page.get_by_text(want).first.wait_for()
        browser.close(page)
    with urllib.request.urlopen(browser.url + "query?q=SHOW+DATABASES") as answer:
        assert "results" in json.load(answer)


def keyboard(browser):
    """Every page is reached and used without a pointer."""
    page = browser.open("plan")
    keys = page.keyboard
    page.locator("main").click(position={"x": 2, "y": 2})
    for key, heading in (("e", "Metrics"), ("c", "Cardinality of the head"), ("s", "Storage"), ("r", "Running queries"), ("t", "Settings"), ("p", "Plan of a query")):
        keys.press("g")
        keys.press(key)
        page.get_by_role("heading", name=heading, exact=True).wait_for()
        reach(page, {"e": "Search metrics", "c": "Series by metric", "s": "Memory by part", "r": "Keys", "t": "Filter settings", "p": "Line of the slow query log"}[key])
        if key == "e":
            keys.type("page_fl")
            page.get_by_role("link", name="page_floats").wait_for()
            reach(page, "page_floats")
            keys.press("Enter")
            page.get_by_role("heading", name="page_floats").wait_for()
        if key == "t":
            keys.type("data-dir")
        page.evaluate("document.activeElement.blur()")
    keys.press("g")
    keys.press("q")
    editor_ready(page)
    keys.press("Escape")
    keys.press("?")
    page.get_by_role("dialog").wait_for()
    keys.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.evaluate("document.activeElement.blur()")
    keys.press("/")
    keys.press("Control+a")
    keys.press("Delete")
    keys.type("vector(41) + 1")
    keys.press("Enter")
    page.wait_for_url(lambda address: "vector%2841%29" in address)
    keys.press("Escape")
    reach(page, "Table")
    keys.press("Enter")
    page.locator(".rows .value").get_by_text("42").wait_for()
    browser.close(page)


def reach(page, name):
    """Presses Tab until the element with this name or text has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("(() => { const e = document.activeElement; return e.getAttribute('aria-label') ?? e.textContent })()").strip() == name:
            return
    raise AssertionError("no focus on %r" % name)


STEPS = [first_load, modules, table, graph, heatmap, plan, errors, languages, addresses, keyboard, axe, shots]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--shots")
    parser.add_argument("--only")
    args = parser.parse_args()
    write(args.url)
    passed = failed = 0
    with sync_playwright() as playwright:
        browser = Browser(playwright, args)
        for step in STEPS:
            if args.only and step.__name__ not in args.only.split(","):
                continue
            start, fault = time.time(), ""
            try:
                step(browser)
                passed += 1
            except Exception as error:  # a step that fails does not stop the others
                failed += 1
                browser.faults = []
                where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
                fault = ": line %d: %s" % (where.lineno, re.sub(r"\s+", " ", str(error))[:1500])
            print("%-4s %s (%.1f s)%s" % ("FAIL" if fault else "ok", step.__name__, time.time() - start, fault), flush=True)
        browser.browser.close()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
