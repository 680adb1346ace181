"""An empty result says which name or value no series has, offers the nearest, or the time of the newest sample; a click leads to a result."""
import time
import urllib.parse

from driver import RUN, panel

JOB = '{job="a",run="%s"}' % RUN
SHOWN = ".legend li, .rows td, canvas.heat"
# Query, part of the hint, button, query after the click.
MISSING = [
    ("page_flots" + JOB, 'matches __name__="page_flots"', "page_floats", "page_floats" + JOB),
    ("sum(rate(page_float%s[5m])) + 1" % JOB, 'matches __name__="page_float"', "page_floats", "sum(rate(page_floats%s[5m])) + 1" % JOB),
    ("floats" + JOB, 'matches __name__="floats"', "page_floats", "page_floats" + JOB),
    ("PAGE_FLOATS" + JOB, 'matches __name__="PAGE_FLOATS"', "page_floats", "page_floats" + JOB),
    ('{"page_manny",run="%s"}' % RUN, 'matches __name__="page_manny"', "page_many", '{"page_many",run="%s"}' % RUN),
    ('{__name__=~"page_bukket",run="%s"}' % RUN, 'matches __name__=~"page_bukket"', "page_bucket", '{__name__=~"page_bucket",run="%s"}' % RUN),
    ('page_many{idx="2999",run="%s"}' % RUN, 'of page_many matches idx="2999"', "299", 'page_many{idx="299",run="%s"}' % RUN),
    ('page_many{idx=~"2999|3000",run="%s"}' % RUN, 'matches idx=~"2999|3000"', "299", 'page_many{idx=~"299",run="%s"}' % RUN),
    ('page_bucket{le="10",run="%s"}' % RUN, 'of page_bucket matches le="10"', "1", 'page_bucket{le="1",run="%s"}' % RUN),
    ('page_one{job="zzz",run="%s"}' % RUN, 'of page_one matches job="zzz"', "a", 'page_one{job="a",run="%s"}' % RUN),
    ('page_many{ids="7",run="%s"}' % RUN, "of page_many has the label ids", "idx", 'page_many{idx="7",run="%s"}' % RUN),
    ('page_many{idx="7",run="%s"} / page_mani{idx="7",run="%s"}' % (RUN, RUN), 'matches __name__="page_mani"', "page_many", 'page_many{idx="7",run="%s"} / page_many{idx="7",run="%s"}' % (RUN, RUN)),
]
# Empty, but nothing is missing.
COMPLETE = [
    ("page_floats%s > 1e9" % JOB, "Every selector has samples here"),
    ('page_floats%s and on (job) page_bucket{le="1",run="%s"}' % (JOB, RUN), "Every selector has samples here"),
    ('page_bucket{le="1",run="%s",job="a"}' % RUN, "has the label job"),
]


def text_of(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def hints(browser):
    # A fixed end, since this step may run long after the samples were written.
    found = browser.get("api/v1/query", query="max(timestamp(page_floats%s))" % JOB)["result"]
    last = int(float(found[0]["value"][1]))
    at = {"range_input": "10m", "end_input": text_of(last)}
    for tab in ("graph", "table"):
        for query, text, button, after in MISSING:
            page = browser.open(panel(query, run=False, tab=tab, **at))
            page.locator(".hint").get_by_text(text).wait_for()
            page.locator(".hint").get_by_role("button", name=button, exact=True).click()
            page.locator(SHOWN).first.wait_for()
            found = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)["g0.expr"][0]
            assert found == after, (query, found)
            browser.close(page)
    for query, text in COMPLETE:
        page = browser.open(panel(query, run=False, **at))
        page.locator(".hint").get_by_text(text).wait_for()
        browser.close(page)
    newest(browser, last)


def newest(browser, last):
    """The newest sample before a range, after it, and of a selector with an offset: the API's time of it, and a graph after a click."""
    for query, end in (("page_floats" + JOB, last + 3 * 86_400), ("rate(page_floats%s[2m])" % JOB, last + 7_200), ("page_floats%s offset 1h" % JOB, last + 9_000), ("page_floats" + JOB, last - 86_400)):
        for tab in ("graph", "table"):
            page = browser.open(panel(query, run=False, tab=tab, range_input="10m", end_input=text_of(end)) + "&tz=utc")
            page.locator(".hint").get_by_text("has no samples").wait_for()
            button = page.locator(".hint button")
            assert button.inner_text() == text_of(last), (query, button.inner_text(), last)
            button.click()
            if "offset" not in query:
                page.locator(SHOWN).first.wait_for()
            browser.close(page)
