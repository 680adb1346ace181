"""Tabs with the text of an answer: what the API sent, in both notations, of each language; URL and command repeat the request."""
import json
import subprocess
import urllib.parse
import urllib.request

from driver import RUN, panel

JOB = '{job="a",run="%s"}' % RUN
END = "2026-11-20 09:30:15"
# Language, query, fields, path and parameters of the request; None: any value.
CASES = [
    ("promql", "page_floats" + JOB, {}, "/api/v1/query_range", {"query": "page_floats" + JOB, "start": None, "end": None, "step": None}),
    ("promql", "vector(1)", {"end_input": END, "range_input": "1h", "step_input": "60"}, "/api/v1/query_range", {"query": "vector(1)", "start": "1795163400", "end": "1795167000", "step": "60"}),
    ("promql", "vector(9007199254740993)", {"request": "instant", "end_input": END}, "/api/v1/query", {"query": "vector(9007199254740993)", "time": "1795167015"}),
    ("promql", '{__name__=~"page_f.*",run="%s"}' % RUN, {"request": "instant"}, "/api/v1/query", {"query": None}),
    ("promql", "sum(", {}, "/api/v1/query_range", {"query": "sum(", "start": None, "end": None, "step": None}),
    ("promql", "vector(1) + 'x", {"request": "instant"}, "/api/v1/query", {"query": "vector(1) + 'x"}),
    ("influxql", "SHOW DATABASES", {}, "/query", {"q": "SHOW DATABASES", "db": None, "epoch": "ms"}),
    ("influxql", "SELECT 1 FROM", {"db": "x"}, "/query", {"q": "SELECT 1 FROM", "db": "x", "epoch": "ms"}),
    ("graphite", "constantLine(7)", {"end_input": END, "range_input": "1h"}, "/render", {"target": "constantLine(7)", "from": "1795163410", "until": "1795167010", "format": "json", "maxDataPoints": "1000"}),
    ("graphite", "nope(", {}, "/render", {"target": "nope(", "from": None, "until": None, "format": "json", "maxDataPoints": "1000"}),
]


def copied(page, button):
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_text("copied").wait_for()
    return page.evaluate("navigator.clipboard.readText()")


def same(a, b):
    """Equal text of JSON, number by number."""
    try:
        return json.loads(a, parse_int=str, parse_float=str) == json.loads(b, parse_int=str, parse_float=str)
    except ValueError:
        return a == b


def sent_again(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answers(browser):
    for lang, query, fields, path, params in CASES:
        page = browser.open(panel(query, run=False, tab="raw", **({} if lang == "promql" else {"lang": lang}), **fields) + "&tz=utc")
        page.locator("pre.answer").wait_for()
        url = copied(page, "Copy URL")
        assert page.locator("pre.request").inner_text() == url
        found = urllib.parse.urlparse(url)
        values = {name: value[0] for name, value in urllib.parse.parse_qs(found.query, keep_blank_values=True).items()}
        assert found.path == path and set(values) >= {name for name in params} and all(want is None or values[name] == want for name, want in params.items()), (query, url)
        raw = page.locator("pre.answer").text_content()
        status, again = sent_again(url)
        assert page.get_by_text("%d " % status).count() and same(again, raw), (query, again[:500], raw[:500])
        page.locator("[role=status]").last.evaluate("e => { e.textContent = ''; }")
        browser.close(page)
        page = browser.open(panel(query, run=False, tab="raw", **({} if lang == "promql" else {"lang": lang}), **fields) + "&tz=utc&tenant=anonymous")
        page.locator("pre.answer").wait_for()
        command = copied(page, "Copy curl")
        done = subprocess.run(["bash", "-c", command.replace("curl ", "curl -s ", 1)], capture_output=True, text=True, check=True)
        assert same(done.stdout, page.locator("pre.answer").text_content()), (command, done.stdout[:500])
        browser.close(page)
        page = browser.open(panel(query, run=False, tab="json", **({} if lang == "promql" else {"lang": lang}), **fields) + "&tz=utc")
        page.locator("pre.answer").wait_for()
        shown = page.locator("pre.answer").text_content()
        assert same(shown, raw) or not fields.get("end_input"), (query, shown[:500], raw[:500])
        browser.close(page)
    large(browser)


def large(browser):
    """Of a large answer the document has a part, and copying takes all."""
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"idx": str(i)}, "values": [[k, str(i)] for k in range(100)]} for i in range(300)]}})
    for tab in ("json", "raw"):
        page = browser.open(panel("vector(1)", run=False, tab=tab), answers={"query_range": lambda _: text})
        page.get_by_text("are shown").wait_for()
        assert 100_000 <= len(page.locator("pre.answer").text_content()) < 101_000
        whole = copied(page, "Copy answer")
        assert json.loads(whole) == json.loads(text) and (whole == text) == (tab == "raw")
        browser.close(page)
