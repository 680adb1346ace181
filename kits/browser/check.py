#!/usr/bin/env python3
"""Drive the web interface of a server in a headless Chromium, and compare what it shows with the API."""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

import data
import server_state
import world
from answer import answers
from controls import ranges, refresh, room
from data import HOSTILE
from driver import RUN, Browser, NotRun, base_of, editor_ready, panel
from heat import heatmap
from hints import hints
from hostile import hostile
from keyboard import keyboard
from legend import legend
from login import login
from modules import CHECKS
from pictures import pictures
from rules import rules
from small import small
from speed import TIME_FACTOR, speed
from wide import wide

PAGES = ["", "explore", "cardinality", "storage", "cluster", "tenants", "rejects", "queries", "plan", "settings", "alerts", "rules"]
FIRST_LOAD_BYTES_MAX, FIRST_LOAD_REQUESTS_MAX = 250_000, 12
READY_MS_MAX = 400 * TIME_FACTOR
COMPLETIONS_MAX = 100
# A step that begins later finds the newest samples written again, as queries look back five minutes.
DATA_SECONDS = 120
START_SECONDS_MAX = 3 * TIME_FACTOR
# CodeMirror ignores Enter for 75 ms after it has opened the list.
OPTION_READY_MS = 150
OWN_TIME_ERROR = 0.05


def first_load(browser):
    """At most 250 kB of gzip and 12 requests, ready within 400 ms (the best of three)."""
    asked = []
    page = browser.open()
    page.on("request", lambda request: asked.append(urllib.parse.urlparse(request.url).path))
    page.reload()
    editor_ready(page)
    page.wait_for_timeout(300)
    names = [path for path in asked if re.search("/(search|labels?|series|metadata|metric_usage|tsdb)(/|$)", path)]
    assert asked and not names, "the start page asks for names: %s" % names
    browser.close(page)
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
    print("     first load: %d bytes in %d requests, ready after %.0f ms" % (size, len(sizes), best))
    assert len(sizes) <= FIRST_LOAD_REQUESTS_MAX, "is the bundle (make ui) older than the sources?"
    assert size <= FIRST_LOAD_BYTES_MAX, size
    assert best <= READY_MS_MAX, best


def first_graph_seconds(browser, server):
    """Time from the start of a new server to the first graph on its start page."""
    with tempfile.TemporaryDirectory(prefix="chronolith-start-") as folder:
        begin = time.monotonic()
        with world.running(server, folder, []) as url, browser.at(url) as other:
            page = other.open("")
            page.locator(".legend li").first.wait_for(timeout=10_000)
            seconds = time.monotonic() - begin
            assert "chronolith_head_series" in page.locator(".legend").inner_text()
            assert page.locator(".plot").bounding_box()["height"] >= 0.4 * page.viewport_size["height"]
            other.close(page)
    return seconds


def start(browser):
    """The start page of a new server has a graph within three seconds of its start. With several tenants it opens with
    one of them, and names one that does not exist."""
    server, demo = browser.args.server, browser.args.demo
    if not server or not demo:
        raise NotRun("--server and --demo name no programs")
    # The best of three: the first browser after an idle time starts slowly itself.
    seconds = min(first_graph_seconds(browser, server) for _ in range(3))
    print("     first graph %.1f s after the start of the server" % seconds)
    assert seconds <= START_SECONDS_MAX, seconds
    with tempfile.TemporaryDirectory(prefix="chronolith-start-") as folder, world.running(server, folder, world.FLAGS) as url:
        world.load(url, demo, services=5, hours=1)
        with browser.at(url) as other:
            page = other.open("")
            # The policy of the page forbids to evaluate texts, which waiting for a function does.
            for _ in range(100):
                if page.locator(".tenant input").input_value():
                    break
                page.wait_for_timeout(50)
            assert page.locator(".tenant input").input_value() in (world.SHOP, world.BILLING)
            assert "tenant=" in page.url, page.url
            page.locator("datalist option").nth(1).wait_for(state="attached")
            page.locator(".tenant input").fill("nobody")
            # A click by script leaves the focus, and the page is drawn again.
            page.get_by_title("Time zone of all times").evaluate("button => button.click()")
            page.get_by_role("button", name="UTC").wait_for()
            assert page.locator(".tenant input").input_value() == "nobody", "a redraw takes back what is typed"
            # The page asks for this tenant, and for the list once more.
            with page.expect_response(re.compile("status/tenants")):
                page.locator(".tenant input").dispatch_event("change")
            page.wait_for_load_state("networkidle")
            page.get_by_text("no such tenant").wait_for()
            other.close(page)


def modules(browser):
    page = browser.open("plan")
    base = base_of(page)
    faults = []
    for path, expression, want in CHECKS:
        found = page.evaluate("async ([path, text]) => { const m = await import(path); return await RUN; }".replace("RUN", expression), [base + "/" + path, expression])
        if found != want:
            faults.append("%s: %s is %r, not %r" % (path, expression, found, want))
    assert not faults, faults
    browser.close(page)


def axe(browser):
    """All rules, in both schemes. On a phone no page scrolls sideways."""
    axe = Axe()
    graphs = [panel('page_floats{job=~".+"}', tab="graph"), panel('page_floats{job=~".+"}', tab="table"), panel('rate(page_floats{job=~".+"}[1m])', tab="plan"), panel('page_one{job="a"}', tab="graph")]
    state = {name: answer for name, answer in server_state.answers().items() if name != "status/storage"}
    for path in PAGES + ["explore?search=page_fl&metric=page_floats", "explore?kind=influxql", "explore?kind=graphite", "cardinality?match=up&span=1d&against=1", "alerts?view=list"] + graphs:
        # axe adds a style sheet of its own, which the policy would refuse.
        page = browser.open(path, bypass_csp=True, answers={} if path in PAGES[:2] or path.startswith(("?", "explore")) else state)
        if path == "" or path.startswith("?"):
            editor_ready(page)
        if path in ("alerts", "rules"):
            page.locator(".list .rule .fold-line").first.click()
            page.locator(".list .code-function").first.wait_for()
        page.wait_for_timeout(200)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            assert not found, "%s %s: %s" % (path, scheme, [(rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0].get("failureSummary", "")[:300]) for rule in found])
        page.set_viewport_size({"width": 360, "height": 740})
        page.wait_for_timeout(100)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, (path, wide)
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
    assert 'job="a"' in page.locator(".tip").inner_text()
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
    page.get_by_label("Most series").select_option("1000")
    page.get_by_text("300 of 300 series are drawn").wait_for()
    assert "g0.series_max=1000" in page.url, page.url
    page.get_by_label("Choose series").fill('idx="29')
    page.get_by_text("11 of 300 series are drawn").wait_for()
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
    page.get_by_label("Line of the slow query log").fill("no plan")
    page.get_by_role("alert").wait_for()
    browser.close(page)


def own_times(browser):
    """Own times of the operators, as the page shows them, add up to the time of the plan."""
    many = 'page_many{run="%s"}' % RUN
    queries = [text.replace("many", many) for text in ("sum(rate(many[1m]))", "topk(5, rate(many[1m])) / on (idx) many", "quantile_over_time(0.9, many[2m]) + many", "sum by (idx) (many) or page_floats")]
    parts = []
    for query in queries:
        # The whole of a short plan is noise: the longest of some runs counts.
        plans = [browser.get("api/v1/query_range", query=query, start=time.time() - 600, end=time.time(), step=1, explain=1, nocache=1)["explain"] for _ in range(3)]
        page = browser.open("plan")
        page.get_by_label("Line of the slow query log").fill(json.dumps({"query": query, "plan": max(plans, key=lambda one: one["timeMs"])}))
        page.locator("table.plan").wait_for()
        closed = page.locator("table.plan .fold[aria-expanded=false]")
        while closed.count():
            closed.first.click()
        own = [milliseconds(text) for text in page.locator("table.plan tbody td:nth-child(3)").all_inner_texts()]
        total = milliseconds(page.locator("table.plan tbody td:nth-child(4)").first.inner_text())
        parts.append(sum(own) / total)
        browser.close(page)
    print("     own times of %d plans: %s of the total" % (len(parts), ", ".join("%.3f" % part for part in parts)))
    assert all(abs(part - 1) <= OWN_TIME_ERROR for part in parts), parts


def milliseconds(text):
    number, unit = text.split()
    return float(number) * {"ms": 1, "s": 1000}[unit]


def errors(browser):
    """The column of the server's parser is marked."""
    page = browser.open(panel("sum(page_many{) +"))
    page.get_by_role("alert").get_by_text("parse error").wait_for()
    editor_ready(page)
    page.locator(".editor .cm-lintRange-error, .editor .cm-lintPoint").first.wait_for()
    browser.close(page)


def accept_option(page, text):
    """Accepts the shown option with Enter; `text` is the query after it."""
    page.wait_for_timeout(OPTION_READY_MS)
    page.keyboard.press("Enter")
    page.locator(".editor .cm-content").get_by_text(text, exact=True).wait_for()


def completion(browser):
    """Completion asks for what is typed alone, 100 entries at most; the next key cancels; typing over a selection needs
    no inline style, which the policy refuses."""
    asked, cancelled = [], []
    page = browser.open(panel("page_floats{}", tab="table"))
    page.on("request", lambda request: asked.append(urllib.parse.unquote_plus(request.url + " " + (request.post_data or ""))))
    page.on("requestfailed", lambda request: cancelled.append(request.url))
    is_names = re.compile("api/v1/(search/|labels|label/)")
    editor_ready(page)
    page.locator(".editor .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("sum(page_man")
    assert page.locator(".editor .cm-content").inner_text() == "sum(page_man)"
    page.get_by_role("option", name="page_many").wait_for()
    names = [request for request in asked if is_names.search(request)]
    assert names and all("pa" in request for request in names), names
    assert all(re.search(r"[?& ]limit=%d(&| |$)" % COMPLETIONS_MAX, request) for request in names), names
    accept_option(page, "sum(page_many)")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda address: "page_many" in address)
    page.get_by_text("1 rows", exact=True).wait_for()
    # Names of labels, and a request that has no answer when the next key comes.
    asked.clear()
    page.keyboard.press("Control+a")
    page.keyboard.type("page_many{i")
    page.get_by_role("option", name="idx").wait_for()
    assert all("limit=%d" % COMPLETIONS_MAX in request for request in asked if is_names.search(request)), asked
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    held = []
    page.route(is_names, lambda route: held.append(route))
    page.locator(".editor .cm-content").click()
    page.keyboard.press("Control+a")
    with page.expect_request(is_names):
        page.keyboard.type("page_f")
    cancelled.clear()
    with page.expect_event("requestfailed", lambda request: is_names.search(request.url)):
        page.keyboard.type("l")
    page.unroute_all(behavior="ignoreErrors")
    browser.close(page)


def missing_endpoints(browser):
    """A server without an endpoint: the page says so, and completion falls back to the label APIs."""
    page = browser.open("tenants")
    page.route("**/api/v1/status/tenants*", lambda route: route.fulfill(status=404, body="404 page not found", content_type="text/plain"))
    page.reload()
    page.get_by_role("alert").get_by_text("does not have /api/v1/status/tenants").wait_for()
    browser.close(page)
    page = browser.open("plan")
    page.route("**/api/v1/search/**", lambda route: route.fulfill(status=404, body="404 page not found", content_type="text/plain"))
    found = page.evaluate("""async base => {
        const { metricNames, labelNames, labelValues } = await import(base + "/query/completion.js"), { signal } = new AbortController();
        return [(await metricNames("page_flo", signal)).values, (await labelNames("ru", "page_floats", signal)).values, (await labelValues("job", "a", "page_floats", signal)).values.includes("a")];
    }""", base_of(page))
    assert found == [["page_floats"], ["run"], True], found
    browser.close(page)


def status(browser):
    """Pages of the server's state: what they show is what its endpoints answer."""
    answers = {name: answer for name, answer in server_state.answers().items() if name != "status/storage"}
    page = browser.open("storage?tz=utc", answers=answers)
    boxes = page.locator(".map").first.locator("li")
    sizes = [entry["bytes"] for part in server_state.memory()["parts"].values() for entry in part.values()] + [9 << 20, 52 << 20]
    areas = boxes.evaluate_all("all => all.map(e => [e.title, e.getBoundingClientRect().width * e.getBoundingClientRect().height])")
    whole = sum(area for _, area in areas)
    shares = sorted((area / whole for _, area in areas), reverse=True)
    assert len(areas) == len(sizes) and all(abs(share - size / sum(sizes)) < 0.01 for share, size in zip(shares, sorted(sizes, reverse=True))), (shares, sizes)
    assert page.locator(".lane i").count() == 1 + len(server_state.blocks()["blocks"])
    lanes = page.locator(".lane").evaluate_all("all => all.map(lane => [...lane.children].map(e => [e.offsetLeft, e.offsetLeft + e.offsetWidth]))")
    assert all(a[1] <= b[0] + 3 for lane in lanes for a, b in zip(sorted(lane), sorted(lane)[1:])), "blocks of a lane overlap"
    tops = page.locator(".facts").first.locator("dd").evaluate_all("all => [...new Set(all.map(e => Math.round(e.getBoundingClientRect().top)))]")
    assert len(tops) <= 3, "figures of a row do not stand on one line: %s" % tops
    browser.close(page)
    page = browser.open("cluster?tz=utc", answers={**answers, "status/cluster": lambda _: server_state.cluster()})
    rows = [row.split("\t") for row in page.get_by_role("region", name="Owners").locator("tbody tr").all_inner_texts()]
    assert [(row[0], row[1], row[2], row[7]) for row in rows] == [("0", "10.0.0.7:9595", "ready", "88,000"), ("1", "10.0.0.8:9595", "lag of 9000 ms", "–"), ("2", "–", "no owner", "–"), ("–", "10.0.0.9:9595", "connection refused", "–")], rows
    assert page.get_by_role("navigation", name="Pages").get_by_role("link", name="Cluster").is_visible()
    assert page.get_by_role("region", name="Partition map").locator("tbody tr").count() == 3
    browser.close(page)
    page = browser.open("cluster", answers={**answers, "status/cluster": lambda _: None})
    page.get_by_text("This server has role all").wait_for()
    browser.close(page)
    page = browser.open("rejects?tz=utc", answers=answers)
    page.get_by_role("button", name="Minutes of too old, shop").click()
    want = [n for n in server_state.rejects()["counts"][0]["perMinute"] if n]
    assert [int(text) for text in page.get_by_role("region", name="Rejects per minute").locator(".value").all_inner_texts()] == want
    browser.close(page)
    page = browser.open("cardinality", answers=answers)
    page.get_by_label("Order").select_option("unused")
    page.wait_for_url(lambda address: "sort=unused" in address)
    page.locator(".unused").first.wait_for()
    page.get_by_role("link", name="http_requests_total", exact=True).first.click()
    assert "match=%7B__name__%3D%22http_requests_total%22%7D" in page.url, page.url
    page.get_by_role("link", name="zone=eu-1").click()
    page.wait_for_url(lambda address: "zone%3D%22eu-1%22" in address and "__name__" in address)
    browser.close(page)
    ended = []
    page = browser.open("queries", answers={**answers, "status/active_queries/kill": lambda params: ended.append(params["id"]) or {"killed": 1}})
    page.get_by_role("button", name="End query 2").click()
    page.get_by_text("query 2 was ended").wait_for()
    assert ended == [["2"]], ended
    browser.close(page)


def live(browser):
    """The same pages with answers of the server itself: a fault of any of them is shown, so none may be there."""
    for path in PAGES + ["cardinality?match=page_floats&span=1d", "explore?search=page_fl&metric=page_floats"]:
        page = browser.open(path)
        page.wait_for_timeout(400)
        alerts = [text for text in page.get_by_role("alert").all_inner_texts()]
        missing = [text for text in alerts if "does not have" in text]
        assert alerts == missing, (path, alerts)
        if missing:
            print("     %s: %s" % (path, missing[0]))
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
    for path, want in (("graph?g0.expr=vector(7)&g0.tab=1", "7"), ("query?g0.expr=vector(8)&g0.tab=table", "8"), ("tsdb-status", "Cardinality of the head"), ("flags", "Settings"), ("alerts", "No alerting rules are loaded"), ("rules", "No rules are loaded")):
        page = browser.open(path)
        page.get_by_text(want).first.wait_for()
        browser.close(page)
    with urllib.request.urlopen(browser.url + "query?q=SHOW+DATABASES") as answer:
        assert "results" in json.load(answer)


STEPS = [first_load, start, modules, table, graph, refresh, ranges, room, hints, answers, legend, small, heatmap, plan, own_times, errors, completion, missing_endpoints, status, wide, rules, live, languages, addresses, login, keyboard, pictures, hostile, axe, speed]
# Run by a second process next to the others; figures of speed are measured when nothing else runs.
ASIDE, ALONE = ("hostile", "axe"), ("speed", "first_load", "start")
RESULTS = ("passed", "failed", "skipped")


def run_steps(args, names, newest):
    """Runs steps in one browser; returns their numbers by result."""
    counts = collections.Counter()
    written = time.time()
    with sync_playwright() as playwright:
        browser = Browser(playwright, args)
        for step in STEPS:
            if step.__name__ not in names:
                continue
            start, result, fault = time.time(), "passed", ""
            if start - written > DATA_SECONDS:
                data.refresh_run(args.url)
                written = start
            try:
                step(browser, newest) if step is heatmap else step(browser)
            except NotRun as why:
                result, fault = "skipped", ": not run: %s" % why
            except Exception as error:  # a step that fails does not stop the others
                result, browser.faults = "failed", []
                where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
                fault = ": line %d: %s" % (where.lineno, re.sub(r"\s+", " ", str(error))[:1500])
            counts[result] += 1
            print("%-4s %s (%.1f s)%s" % ({"passed": "ok", "failed": "FAIL", "skipped": "skip"}[result], step.__name__, time.time() - start, fault), flush=True)
        browser.browser.close()
    return counts


def run_pages(args):
    """All steps but those of speed, some of them in a second process."""
    command = [sys.executable, os.path.abspath(__file__), args.url, "--chromium", args.chromium, "--only", ",".join(ASIDE)]
    aside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    counts = run_steps(args, [step.__name__ for step in STEPS if step.__name__ not in ASIDE + ALONE], data.write_run(args.url))
    lines = aside.communicate()[0].splitlines()
    found = [re.search(r"(\d+) " + result, lines[-1]) if lines else None for result in RESULTS]
    print("\n".join(lines[:-1]))
    counts.update({result: int(one[1]) for result, one in zip(RESULTS, found) if one} if found[0] else {"failed": len(ASIDE)})
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--only", help="names of steps, with commas")
    parser.add_argument("--part", choices=("pages", "speed"), help="all steps but those of speed, or these alone")
    parser.add_argument("--server", help="program of the server, for pictures of the generated world")
    parser.add_argument("--demo", help="chronolith-demo, for the same")
    args = parser.parse_args()
    start, counts = time.time(), collections.Counter()
    if args.only:
        counts += run_steps(args, args.only.split(","), data.write_run(args.url))
    if not args.only and args.part != "speed":
        counts += run_pages(args)
    if not args.only and args.part != "pages":
        counts += run_steps(args, ALONE, data.write_run(args.url))
    print("     %.0f s in all" % (time.time() - start))
    print(", ".join("%d %s" % (counts[result], result) for result in RESULTS))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
