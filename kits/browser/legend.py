"""Legend of a graph: names without common labels, columns, figures, the scroll bar."""
import json

from driver import RUN, panel

END, END_TEXT = 1795165200, "2026-11-20 09:00:00"


def matrix(labels):
    """A range result with a series per labels, of 60 points."""
    result = [{"metric": one, "values": [[END - 3600 + 60 * k, str(idx + k)] for k in range(60)]} for idx, one in enumerate(labels)]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def shown(browser, labels, **fields):
    text = matrix(labels)
    page = browser.open(panel("vector(1)", run=False, range_input="1h", step_input="60", end_input=END_TEXT, **fields), answers={"query_range": lambda _: text})
    page.locator(".legend li").first.wait_for()
    return page


def columns(page):
    lefts = page.locator(".legend li").evaluate_all("all => all.map(e => Math.round(e.getBoundingClientRect().left))")
    heads = page.locator(".legend-head > div").count()
    assert heads == len(set(lefts)), (heads, set(lefts))
    return heads


# Labels of series, and common labels with the names left; the whole names where there are none.
NAMES = [
    ([{"__name__": "up", "job": "a", "idx": "1"}, {"__name__": "up", "job": "a", "idx": "2"}], 'up{job="a"}', ['{idx="1"}', '{idx="2"}']),
    ([{"job": "a", "x": "1"}, {"job": "a", "x": "1", "y": "2"}], '{job="a", x="1"}', ["{}", '{y="2"}']),
    ([{"__name__": "a"}, {"__name__": "b"}], None, ["a", "b"]),
    ([{"__name__": "a", "l": "v"}, {"__name__": "b", "l": "v"}], '{l="v"}', ["a", "b"]),
    ([{"__name__": "a", "l": "v"}], None, ['a{l="v"}']),
    ([{"__name__": "a.b", "l": "1"}, {"__name__": "a.b", "l": "2"}], '{"a.b"}', ['{l="1"}', '{l="2"}']),
    ([{"l": ""}, {"l": "x"}], None, ['{l=""}', '{l="x"}']),
    ([{"toString": "x", "l": "1"}, {"toString": "x", "l": "2"}], '{toString="x"}', ['{l="1"}', '{l="2"}']),
    ([{"l": "1"}, {"toString": "x"}], None, ['{l="1"}', '{toString="x"}']),
    ([{"a": "<b>", "c": "1"}, {"a": "<b>", "c": "2"}, {"a": "<b>", "c": "3"}], '{a="<b>"}', ['{c="1"}', '{c="2"}', '{c="3"}']),
]


def legend(browser):
    for labels, common, names in NAMES:
        page = shown(browser, labels)
        assert page.locator(".legend .name").all_inner_texts() == names, (labels, page.locator(".legend .name").all_inner_texts())
        assert page.locator(".common code").all_inner_texts() == ([common] if common else [])
        if common:
            page.get_by_role("button", name="Hide common labels").click()
            page.get_by_role("button", name="Hide common labels", pressed=False).wait_for()
            assert "full_names=1" in page.url, page.url
            full = page.locator(".legend .swatch").evaluate_all("all => all.map(e => e.getAttribute('aria-label').replace('Hide or show ', ''))")
            assert page.locator(".legend .name").all_inner_texts() == full != names, (labels, full)
        browser.close(page)
    page = shown(browser, [{"__name__": "http_requests_total", "job": "api", "instance": "i-%d" % k} for k in range(40)])
    assert columns(page) >= 2 and page.locator(".legend-head").inner_text().startswith("40 series"), page.locator(".legend-head").inner_text()
    found = page.locator(".legend li").first.locator(".figures").inner_text().split()
    assert found == ["last", "59", "min", "0", "max", "59", "mean", "29.5"], found
    box = page.locator(".legend")
    bar, inside, whole = box.evaluate("e => [e.offsetWidth - e.clientWidth, e.clientHeight, e.scrollHeight]")
    assert bar == 10 and (inside < whole or whole < 220), (bar, inside, whole)
    plot = page.locator(".u-over").bounding_box()
    page.mouse.move(plot["x"] + 300, plot["y"] + 80)
    page.locator(".tip").get_by_text('{instance="i-').first.wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".legend-head > div").nth(1).wait_for(state="detached")
    browser.close(page)
    page = shown(browser, [{"path": "/%d/%s" % (k, "long/" * 20)} for k in range(40)])
    assert columns(page) == 1
    assert page.locator(".legend").evaluate("e => e.scrollHeight > e.clientHeight && e.offsetWidth - e.clientWidth") == 10, "no scroll bar is seen"
    browser.close(page)
    # Series of the server itself: the name in the legend selects the same series.
    page = browser.open(panel('page_floats{job=~".+"}', range_input="10m"))
    page.locator(".common code").get_by_text('page_floats{run="%s"}' % RUN).wait_for()
    browser.close(page)
