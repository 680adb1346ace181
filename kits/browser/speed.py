"""Speed of the interface with large answers, which the test makes: figures are printed, limits are those of the issue.

A second try counts where the first is too slow: other processes of the machine must not fail the test."""
import os

import server_state
from driver import base_of, panel

TRIES = 2
# Between keys, a fast typist's: keys without a pause wait for each other, and the figure would be of the queue.
TYPING_MS = 100
# Machines of CI are shared with those of others; nothing of this project runs meanwhile.
TIME_FACTOR = 2 if os.environ.get("CI") else 1
DRAWN_MS_MAX, HOVER_MS_MAX = 1000 * TIME_FACTOR, 50 * TIME_FACTOR
TASK_MS_MAX = 200 * TIME_FACTOR
USABLE_MS_MAX, KEY_MS_MAX = 2000 * TIME_FACTOR, 100 * TIME_FACTOR
END_TEXT = "2026-01-01 00:00:00"

TASKS = "new PerformanceObserver(list => { for (const e of list.getEntries()) (window.tasks ??= []).push(e.duration); }).observe({ type: 'longtask', buffered: true });"
# Time of the first frame after an element is there.
SEEN = """window.seenAt = {}; const watched = %s;
new MutationObserver(() => { for (const [name, selector] of Object.entries(watched)) if (!(name in seenAt) && document.querySelector(selector)) { seenAt[name] = 0; requestAnimationFrame(() => requestAnimationFrame(() => { seenAt[name] = performance.now(); })); } }).observe(document, { childList: true, subtree: true });"""
# Time from each key to the frame that shows what it did.
KEYS = "window.keyTimes = []; addEventListener('keydown', e => { const at = e.timeStamp; requestAnimationFrame(() => setTimeout(() => keyTimes.push(performance.now() - at))); }, true);"
HOVER = """async () => {
  const over = document.querySelector('.u-over'), box = over.getBoundingClientRect(), tip = document.querySelector('.tip'), times = [], texts = new Set();
  for (let k = 0; k < 40; k++) {
    const at = performance.now();
    over.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: box.left + box.width * (0.1 + 0.02 * k), clientY: box.top + box.height * (0.2 + 0.015 * k) }));
    await new Promise(requestAnimationFrame);
    texts.add(tip.textContent); tip.offsetHeight;
    times.push(performance.now() - at);
  }
  times.sort((a, b) => a - b);
  return { median: times[20], p95: times[37], texts: texts.size };
}"""


def best(measure, limits):
    """Figures of a try within the limits, otherwise the smallest of several tries."""
    tries = []
    while len(tries) < TRIES:
        tries.append(measure())
        if all(tries[-1][name] < limit for name, limit in limits.items()):
            return tries[-1]
    return {name: min(one[name] for one in tries) for name in tries[0]}


# Draws lines of its own data into the document; the time to the frame that shows them.
DRAW = """async ([base, series, points]) => {
  const [{ html, render }, { Graph }, { readPanel }] = await Promise.all(["lib/ui.js", "query/graph.js", "query/panel.js"].map(path => import(base + "/" + path)));
  const times = Array.from({ length: points }, (_, k) => 1767225600 + 10 * k), none = () => {};
  const lines = Array.from({ length: series }, (_, s) => ({ text: `many{instance="i-${s}"}`, labels: { instance: `i-${s}` }, points: times.map((_, k) => (s * 37 + k * (s % 7 + 1)) % 1000), histograms: null }));
  const main = document.querySelector("main"), panel = { ...readPanel(new URLSearchParams("g0.series_max=1000"), 0) }, marks = [];
  const at = performance.now();
  render(html`<${Graph} times=${times} series=${lines} panel=${panel} utc=${true} marks=${marks} onZoom=${none} onChange=${none} />`, main);
  while (!document.querySelector(".u-over")) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  await new Promise(resolve => setTimeout(resolve));
  return performance.now() - at;
}"""


def graph(browser):
    """1,000 series of 1,000 points: drawing them, and from a move of the pointer to its values; with the answer of a server, too."""
    text = server_state.series_range(1000, 1000)

    def measure():
        page = browser.open("plan")
        drawn = page.evaluate(DRAW, [base_of(page), 1000, 1000])
        assert page.locator(".legend li").count() == 1000
        hover = page.evaluate(HOVER)
        assert hover["texts"] > 30, "the values at the pointer do not follow it"
        browser.close(page)
        return {"drawn": drawn, "hover": hover["p95"], "median": hover["median"]}

    found = best(measure, {"drawn": DRAWN_MS_MAX, "hover": HOVER_MS_MAX})
    page = browser.open(panel("many", run=False, range_input="9990s", step_input="10", end_input=END_TEXT, series_max="1000"), answers={"query_range": lambda _: text}, script=SEEN % "{ graph: '.u-over' }")
    page.wait_for_function("() => window.seenAt?.graph > 0", timeout=30_000)
    answered = page.evaluate("seenAt.graph - performance.getEntriesByType('resource').find(e => e.name.includes('query_range')).responseEnd")
    assert page.locator(".legend li").count() == 1000
    browser.close(page)
    print("     1,000 series x 1,000 points: drawn in %.0f ms, %.0f ms after the end of an answer of %.0f MB; hover %.0f ms (median %.0f)" % (found["drawn"], answered, len(text) / 1e6, found["hover"], found["median"]))
    assert found["drawn"] < DRAWN_MS_MAX and found["hover"] < HOVER_MS_MAX, found


def table(browser):
    """50,000 rows: no task of the page is long, whatever the reader does."""
    text = server_state.rows_instant(50_000)

    def measure():
        page = browser.open(panel("http_requests_total", run=False, tab="table", end_input=END_TEXT), answers={"query": lambda _: text}, script=TASKS)
        page.get_by_text("50,000 rows", exact=True).wait_for(timeout=30_000)
        page.wait_for_timeout(200)
        loaded = page.evaluate("Math.max(0, ...window.tasks ?? [])")
        for name, first in (("value", "999,"), ("instance", "10.0.0.0:9100")):
            page.get_by_role("button", name=name, exact=True).click()
            page.wait_for_function("text => document.querySelector('.rows tbody tr:not(.gap)').textContent.replace(/(\\d{3})(\\d{3})$/, '$1,$2').includes(text)", arg=first, timeout=20_000)
        page.get_by_label("Filter rows").press_sequentially("items/77 code")
        page.get_by_label("Filter rows").fill("")
        page.locator(".rows").evaluate("async box => { for (let k = 0; k < 20; k++) { box.scrollTop = k * 60_000; await new Promise(requestAnimationFrame); } }")
        assert page.locator(".rows tbody tr").count() < 80, "all rows are in the document"
        longest = page.evaluate("Math.max(0, ...window.tasks ?? [])")
        browser.close(page)
        return {"loaded": loaded, "longest": longest}

    found = best(measure, {"longest": TASK_MS_MAX})
    print("     50,000 rows: longest task %s, until they are shown %s" % tuple("%.0f ms" % found[name] if found[name] else "below 50 ms" for name in ("longest", "loaded")))
    assert found["longest"] <= TASK_MS_MAX, found


def typed(browser, path, text, status, label, keys):
    """Times of a list until it can be used, from the end of the answer until it is drawn, and of the slowest key of its filter; its rows after that."""
    page = browser.open(path, answers={"rules": lambda _: text}, script=SEEN % "{ rows: '.list > li' }" + KEYS)
    page.wait_for_function("() => window.seenAt?.rows > 0", timeout=30_000)
    usable, drawn = page.evaluate("[seenAt.rows, seenAt.rows - performance.getEntriesByType('resource').find(e => e.name.includes('/api/v1/rules')).responseEnd]")
    page.get_by_text(status).wait_for()
    page.get_by_label(label).focus()
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(TYPING_MS)
    page.wait_for_function("length => keyTimes.length >= length", arg=len(keys))
    key, shown = page.evaluate("Math.max(...keyTimes)"), page.locator(".list > li").all_inner_texts()
    assert page.locator(".list > li").count() < 100, "all rows are in the document"
    browser.close(page)
    return {"usable": usable, "drawn": drawn, "key": key}, shown


def rules(browser):
    """15,000 rules with 3,000 alerts: usable soon, and each key of the filter is followed at once."""
    text, label = server_state.success(server_state.rules()), "Filter by text or label=value"

    def measure():
        found, shown = typed(browser, "rules", text, "15,000 of 15,000", label, "team=team-3 cart")
        assert len(shown) > 3 and any("cart" in row.lower() for row in shown), shown[:3]
        return found

    report("15,000 rules, 3,000 alerts", text, best(measure, LISTS))


def alerts(browser):
    """10,000 alerts, by rule and in one list."""
    text, label = server_state.success(server_state.rules(5_000, 10_000, each=20)), "Filter by text or label=value"
    for path, status in (("alerts", "10,000 of 10,000 alerts, 4,000 of 4,000 rules"), ("alerts?view=list", "10,000 of 10,000 alerts")):
        def measure(path=path, status=status):
            found, shown = typed(browser, path, text, status, label, "team=team-3 cart")
            assert shown and all("cart" in row.lower() for row in shown), shown[:3]
            assert "list" not in path or all('team="team-3"' in row for row in shown), shown[:3]
            return found

        report("10,000 alerts, %s" % path, text, best(measure, LISTS))


LISTS = {"usable": USABLE_MS_MAX, "drawn": DRAWN_MS_MAX, "key": KEY_MS_MAX}


def report(name, text, found):
    print("     %s (%.1f MB): usable after %.0f ms, drawn %.0f ms after the answer, a key in the filter %.0f ms" % (name, len(text) / 1e6, found["usable"], found["drawn"], found["key"]))
    assert all(found[figure] < limit for figure, limit in LISTS.items()), found


def speed(browser):
    graph(browser)
    table(browser)
    rules(browser)
    alerts(browser)
