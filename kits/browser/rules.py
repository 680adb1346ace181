"""The pages Rules and Alerts with made answers: one group of each kind, no rules, errors, filters, links, plots, long lists."""
import json
import re
import urllib.parse

import server_state
from driver import editor_ready

# The clock of the page; times of the answers are relative to it.
NOW_MS = server_state.END_MS
SHOWN = {"now": NOW_MS / 1000}
RECORDING_QUERY = 'sum by (job) (rate(http_requests_total{code=~"5.."}[5m])) # errors'
FIRING_QUERY = "(job:errors:rate5m / on (job) job:requests:rate5m) > 100 * 0.005"
REFRESH_MS = 15_000
ROWS_IN_DOCUMENT_MAX = 120
HREF = "e => e.getAttribute('href')"


def ago(seconds):
    return server_state.time_text(NOW_MS - 1000 * seconds)


def rule(kind, name, query, **fields):
    return {"type": kind, "name": name, "query": query, "health": "ok", "evaluationTime": 0.0125, "lastEvaluation": ago(12), "labels": {}, **fields}


def alert(name, state, seconds, labels, **fields):
    return {"state": state, "labels": {"alertname": name, **labels}, "annotations": {}, "activeAt": ago(seconds), "value": "1.25e+00", **fields}


def every_kind():
    """Recording, firing, pending, kept firing, inactive, failed and not yet evaluated rules in two files."""
    firing = [alert("ErrorsHigh", "firing", 1200, {"job": "cart", "severity": "page", "team": "shop"}, annotations={"summary": "cart fails, see https://runbooks.example/errors?job=cart.", "dashboard": "http://grafana.example/d/1", "other": "javascript:alert(1) ftp://files.example/x"}),
              alert("ErrorsHigh", "pending", 60, {"job": "mail", "severity": "page"}, value="+Inf")]
    kept = [alert("QueueFull", "firing", 7200, {"queue": "q 1"}, keepFiringSince=ago(60))]
    return {"groups": [
        {"name": "requests", "file": "/etc/rules/a.yml", "interval": 60, "limit": 7, "evaluationTime": 57.5, "lastEvaluation": ago(12), "missedRounds": 3, "caughtUpRounds": 2, "lostRounds": 0, "repairedRounds": 1200, "rules": [
            rule("recording", "job:errors:rate5m", RECORDING_QUERY, samples=8, labels={"level": "job"}),
            rule("alerting", "ErrorsHigh", FIRING_QUERY, state="firing", duration=300, labels={"severity": "page"}, alerts=firing, evaluationTime=57, annotations={"summary": "{{ $labels.job }} fails, see https://runbooks.example/{{ $labels.job }}"})]},
        {"name": "queues", "file": "/etc/rules/a.yml", "interval": 15, "evaluationTime": 0.001, "lastEvaluation": ago(3), "rules": [
            rule("alerting", "QueueFull", 'queue_length{queue="q 1"} > 5', state="firing", duration=0, keepFiringFor=600, alerts=kept),
            rule("alerting", "QueueEmpty", "absent(queue_length)", state="inactive", duration=0, alerts=[])]},
        {"name": "broken", "file": "/etc/rules/b.yml", "interval": 3600, "evaluationTime": 0, "lastEvaluation": "0001-01-01T00:00:00Z", "rules": [
            rule("alerting", "Failed", "a + on () b", state="unknown", health="err", lastError="found duplicate series for the match group", alerts=[]),
            rule("recording", "not:yet", "vector(1)", health="unknown", lastEvaluation="0001-01-01T00:00:00Z", evaluationTime=0)]}]}


def opened(browser, path, groups=None, **options):
    state = groups or every_kind()
    return browser.open(path, answers={"rules": lambda _: state, **options.pop("answers", {})}, **{**SHOWN, **options})


def rows(page):
    return page.locator(".list > li")


def cells_of(page, name):
    """The row of a rule, closed or open."""
    return rows(page).filter(has=page.get_by_role("button", name=name, exact=True))


def open_row(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    row = cells_of(page, name)
    row.locator(".detail").wait_for()
    return row


def no_rules(browser):
    for path, text in (("rules", "No rules are loaded."), ("alerts", "No alerting rules are loaded.")):
        page = opened(browser, path, {"groups": []})
        page.get_by_text(text).wait_for()
        assert page.get_by_role("alert").count() == 0 and page.locator(".list").count() == 0
        browser.close(page)
    # Recording rules alone have no alerts.
    group = every_kind()["groups"][0]
    group["rules"] = group["rules"][:1]
    page = opened(browser, "rules", {"groups": [group]})
    page.get_by_text("1 of 1", exact=True).wait_for()
    browser.close(page)


def rules_page(browser):
    """Rows and details of each kind of rule; times are relative to the clock of the page, whole ones are in titles."""
    page = opened(browser, "rules?tz=utc")
    page.get_by_text("6 of 6", exact=True).wait_for()
    text = re.sub(r"\s+", " ", rows(page).filter(has_text="requests").first.inner_text())
    for part in ("2 rules, limit 7", "every 1m, 12s ago", "57.5 s", "3 missed", "2 caught up", "1,200 repaired"):
        assert part in text, (part, text)
    assert "lost" not in text and page.locator(".group .near").count() == 1, "the bar of the round that takes 57.5 s of 60 s is no warning"
    assert page.get_by_text("12s ago").first.get_attribute("title") == "2025-12-31 23:59:48"
    kinds = [one.split()[0] for one in rows(page).evaluate_all("all => all.map(e => e.className)")]
    assert kinds == ["file", "group", "rule", "rule", "group", "rule", "rule", "file", "group", "rule", "rule"], kinds
    for name, parts in (("job:errors:rate5m", ["recording", "8 samples", "12s ago", "13 ms"]), ("ErrorsHigh", ["firing", "2 alerts", "57.0 s"]), ("QueueFull", ["firing", "1 alert"]), ("QueueEmpty", ["inactive", "0 alerts"]), ("Failed", ["failed"]), ("not:yet", ["unknown", "–"])):
        text = cells_of(page, name).inner_text()
        assert all(part in text for part in parts), (name, text)
    detail = open_row(page, "ErrorsHigh").locator(".detail")
    text = re.sub(r"\s+", " ", detail.inner_text())
    for part in (FIRING_QUERY, "for 5m", "57.0 s, 95.0 % of the interval", 'severity="page"', "/etc/rules/a.yml", "{{ $labels.job }} fails"):
        assert part in text, (part, text)
    assert detail.locator(".annotation a").count() == 0, "an address with a template in it is no link"
    assert "found duplicate series" in open_row(page, "Failed").locator(".error").inner_text()
    assert "keep firing for" in open_row(page, "QueueFull").inner_text() and "none yet" in open_row(page, "not:yet").inner_text()
    browser.close(page)


def alerts_page(browser):
    """Alerts by rule and as one list: state, since when, until when, value, labels, annotations."""
    page = opened(browser, "alerts?tz=utc")
    page.get_by_text("3 of 3 alerts, 4 of 4 rules").wait_for()
    names = rows(page).locator(".fold-line").all_inner_texts()
    assert [name.split()[-1] for name in names] == ["ErrorsHigh", "QueueFull", "Failed", "QueueEmpty"], names
    assert re.sub(r"\s+", " ", rows(page).first.inner_text()).endswith("requests 1 firing 1 pending"), rows(page).first.inner_text()
    page.get_by_role("button", name="Open all").click()
    found = rows(page).filter(has=page.locator(".alert-head"))
    assert found.count() == 3
    texts = [re.sub(r"\s+", " ", text) for text in found.all_inner_texts()]
    assert texts[0].startswith('firing 1.25 for 20m Query History job="cart" severity="page" team="shop" summary cart fails'), texts[0]
    assert "pending +Inf for 1m fires in 4m" in texts[1] and 'condition ended, resolves in 9m' in texts[2] and "for 2h" in texts[2], texts
    assert found.first.get_by_text("for 20m").get_attribute("title") == "2025-12-31 23:40:00"
    page.get_by_label("Show").select_option("list")
    page.get_by_text("3 of 3 alerts", exact=True).wait_for()
    assert [text.split()[0] for text in rows(page).all_inner_texts()] == ["firing", "firing", "pending"]
    assert rows(page).first.get_by_role("link", name="ErrorsHigh").count() == 1
    browser.close(page)


def filters(browser):
    """Filters are in the address; counts of states follow them; a label filters by a click, and no longer by a second one."""
    page = opened(browser, "rules")
    page.get_by_role("button", name="firing 2").click()
    page.get_by_text("2 of 6", exact=True).wait_for()
    page.get_by_label("Filter by text or label=value").fill("queue_length")
    page.get_by_text("1 of 6", exact=True).wait_for()
    page.get_by_role("button", name="firing 1", exact=True).wait_for()
    assert "state=firing" in page.url and "search=queue_length" in page.url, page.url
    for address, shown in (("type=recording", 2), ("type=alerting", 4), ("health=err", 1), ("health=unknown", 1), ("search=severity%3Dpage", 1), ("search=group%3D%22queues%22", 2), ("search=alertname!%3DFailed+broken", 1), ("search=a.yml", 4), ("search=nothing", 0)):
        page.evaluate("search => { history.replaceState(null, '', '?' + search); dispatchEvent(new PopStateEvent('popstate')); }", address)
        page.get_by_text("%d of 6" % shown, exact=True).wait_for()
    page.get_by_text("No rule fits these filters.").wait_for()
    browser.close(page)
    page = opened(browser, "rules?sort=time")
    assert rows(page).locator(".fold-line").first.inner_text().split()[-1] == "ErrorsHigh" and page.locator(".list .group, .list .file").count() == 0
    browser.close(page)
    page = opened(browser, "alerts?view=list")
    chip = page.get_by_role("button", name='queue="q 1"')
    chip.click()
    page.get_by_text("1 of 3 alerts", exact=True).wait_for()
    assert chip.get_attribute("aria-pressed") == "true" and urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)["search"] == ['queue="q 1"']
    page.reload()
    page.get_by_text("1 of 3 alerts", exact=True).wait_for()
    chip.click()
    page.get_by_text("3 of 3 alerts", exact=True).wait_for()
    page.get_by_role("button", name="pending 1").click()
    page.get_by_text("1 of 3 alerts", exact=True).wait_for()
    browser.close(page)


def links(browser):
    """Links to queries, plans, alerts and rules; addresses of annotations, and of no other scheme."""
    page = opened(browser, "rules?tenant=t")
    detail = open_row(page, "ErrorsHigh").locator(".detail")
    parameters = lambda link: {name: values[0] for name, values in urllib.parse.parse_qs(urllib.parse.urlparse(link.evaluate(HREF)).query).items()}
    assert parameters(detail.locator(".query")) == {"tenant": "t", "g0.expr": FIRING_QUERY}
    assert parameters(detail.get_by_role("link", name="Plan")) == {"tenant": "t", "g0.expr": FIRING_QUERY, "g0.tab": "plan", "g0.range_input": "1s", "g0.end_input": "2025-12-31 23:59:48"}
    detail.get_by_role("link", name="2 alerts").click()
    page.get_by_text("2 of 3 alerts, 1 of 4 rules").wait_for()
    page.get_by_role("button", name="Open all").click()
    first = rows(page).filter(has=page.locator(".alert-head")).first
    assert parameters(first.get_by_role("link", name="Query"))["g0.expr"] == FIRING_QUERY
    assert parameters(first.get_by_role("link", name="History"))["g0.expr"] == 'ALERTS{alertname="ErrorsHigh", job="cart", severity="page", team="shop"}'
    found = first.locator(".annotation a").evaluate_all("all => all.map(e => [e.href, e.target, e.rel])")
    assert found == [[href, "_blank", "noopener noreferrer"] for href in ("https://runbooks.example/errors?job=cart", "http://grafana.example/d/1")], found
    page.get_by_role("link", name="requests", exact=True).click()
    page.get_by_role("heading", name="Rules", exact=True).wait_for()
    page.get_by_text("1 of 6", exact=True).wait_for()
    browser.close(page)


def stays_open(browser):
    """What is open stays open when the list comes again with other alerts, and a failed request leaves the list."""
    asked, state = [], {"groups": every_kind(), "fault": False}

    def answer(params):
        asked.append(params)
        return json.dumps({"status": "error", "errorType": "internal", "error": "the disk is gone"}) if state["fault"] else state["groups"]

    page = browser.open("alerts", answers={"rules": answer}, has_clock=True)
    page.get_by_role("button", name="ErrorsHigh", exact=True).click()
    rows(page).filter(has_text='job="mail"').wait_for()
    assert asked[0] == {"type": ["alert"], "extended": ["1"]}, asked
    rules_of = state["groups"]["groups"][0]["rules"]
    rules_of[1]["alerts"].insert(0, alert("ErrorsHigh", "firing", 10, {"job": "stock"}))
    rules_of.insert(0, rule("alerting", "Added", "vector(1)", state="inactive", alerts=[]))
    page.clock.fast_forward(REFRESH_MS + 1000)
    rows(page).filter(has_text='job="stock"').wait_for()
    assert rows(page).filter(has=page.locator(".alert-head")).count() == 3 and page.locator(".detail").count() == 1
    state["fault"] = True
    page.clock.fast_forward(REFRESH_MS + 1000)
    page.get_by_role("alert").get_by_text("the disk is gone").wait_for()
    assert rows(page).filter(has=page.locator(".alert-head")).count() == 3, "a failed request takes the list away"
    state["fault"] = False
    page.clock.fast_forward(REFRESH_MS + 1000)
    page.get_by_role("alert").wait_for(state="detached")
    browser.close(page)


COLOURS = """() => {
  const root = document.querySelector('.query') ?? document.querySelector('.editor').firstElementChild.shadowRoot.querySelector('.cm-content');
  return [...root.querySelectorAll('span')].filter(e => !e.firstElementChild && e.textContent.trim()).map(e => [e.textContent, getComputedStyle(e).color]);
}"""
# Pixels of the colour of a threshold in the row of the canvas that has most of them.
LEVEL = """() => {
  const canvas = document.querySelector('.rule-plot canvas'), { width, height } = canvas, { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
  const probe = document.createElement('i'); probe.style.color = 'var(--bad)'; document.body.append(probe);
  const want = getComputedStyle(probe).color.match(/\\d+/g).map(Number); probe.remove();
  const rows = Array.from({ length: height }, (_, y) => { let n = 0; for (let x = 0; x < width; x++) { const at = 4 * (y * width + x); if (want.every((part, k) => Math.abs(data[at + k] - part) < 30) && data[at + 3] > 150) n++; } return n; });
  return Math.max(...rows) / width;
}"""


def highlight(browser):
    """A query has the colours that it has in the editor."""
    page = opened(browser, "rules")
    open_row(page, "job:errors:rate5m").locator(".query .code-keyword").first.wait_for()
    found = page.evaluate(COLOURS)
    page.locator(".query").click()
    editor_ready(page)
    page.locator(".editor .cm-content span").first.wait_for()
    wanted = page.evaluate(COLOURS)
    assert found == wanted and len(found) >= 8, (found, wanted)
    browser.close(page)


def plot(browser):
    """The plot of a comparison with a number asks for its other side, and draws the number as a line."""
    asked = []

    def answer(params):
        asked.append(params["query"][0])
        start, end, step = (float(params[name][0]) for name in ("start", "end", "step"))
        values = [[start + k * step, "0.1"] for k in range(int((end - start) / step) + 1)]
        return {"resultType": "matrix", "result": [{"metric": {"job": "cart"}, "values": values}]}

    page = opened(browser, "rules", answers={"query_range": answer})
    for name, query, has_level in (("ErrorsHigh", "(job:errors:rate5m / on (job) job:requests:rate5m)", True), ("job:errors:rate5m", RECORDING_QUERY, False)):
        row = open_row(page, name)
        row.get_by_role("button", name="Plot", exact=True).click()
        row.locator(".rule-plot .u-over").wait_for()
        assert asked[-1] == query, asked
        assert ("> 0.5" in row.locator(".rule-plot").inner_text()) == has_level
        share = page.evaluate(LEVEL)
        assert (share > 0.3) == has_level, "the line of the threshold has %.2f of the width" % share
        row.get_by_role("button", name="Hide plot").click()
        row.locator(".rule-plot").wait_for(state="detached")
    browser.close(page)


# Scrolls through a list, and returns the rows that were seen and the most that were in the document at once.
SCROLL = """async () => {
  const box = document.querySelector('.rows.tall'), seen = new Map();
  let most = 0;
  for (let at = 0; at < box.scrollHeight + 400; at += 400) {
    box.scrollTop = at;
    for (let k = 0; k < 4; k++) await new Promise(requestAnimationFrame);
    const items = [...box.querySelectorAll('.list > li')];
    most = Math.max(most, items.length);
    for (const item of items) seen.set(Number(item.getAttribute('aria-posinset')), item.textContent);
  }
  const last = [...box.querySelectorAll('.list > li')].at(-1).getBoundingClientRect(), view = box.getBoundingClientRect();
  return { count: seen.size, texts: new Set(seen.values()).size, most, isLastInView: last.bottom <= view.bottom + 2 && last.bottom > view.bottom - 40 };
}"""


def long_lists(browser):
    """Each of some hundred rows of different heights comes into view once, and few are in the document."""
    many = server_state.rules(300, 120)
    for path, opens, count in (("alerts?view=list", None, 120), ("alerts", "Open all", 240 + 120), ("rules", None, 300 + 12 + 12)):
        page = opened(browser, path, many, width=420 if path == "alerts" else 1280)
        rows(page).first.wait_for()
        if opens:
            page.get_by_role("button", name=opens).click()
        found = page.evaluate(SCROLL)
        assert found["count"] == count and found["most"] <= ROWS_IN_DOCUMENT_MAX and found["isLastInView"], (path, count, found)
        browser.close(page)


def rules(browser):
    for check in (no_rules, rules_page, alerts_page, filters, links, stays_open, highlight, plot, long_lists):
        try:
            check(browser)
        except Exception as error:
            raise AssertionError("%s: %s" % (check.__name__, error)) from error
