"""Controls of a panel: automatic refresh, ranges, the room they take."""
import re
import urllib.parse

from driver import editor_ready, panel

REFRESHES = {"5s": 5, "10s": 10, "30s": 30, "1m": 60, "5m": 300}
PRESETS = {"5m": "5m", "15m": "15m", "30m": "30m", "1h": "1h", "3h": "3h", "6h": "6h", "12h": "12h", "24h": "1d", "2d": "2d", "7d": "1w", "30d": "4w2d", "90d": "12w6d"}
# On a phone, from the top of the page to the plot; with all switches in view it would be 422.
PHONE_PLOT_TOP_MAX = 340
HIDE = "(isHidden => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden }); document.dispatchEvent(new Event('visibilitychange')); })"


class Asked:
    """Counts range queries of a page. Requests of a page come in order, so a probe after the clock has moved shows that no other one was sent."""

    def __init__(self, page):
        self.page, self.count = page, 0
        page.on("request", self.add)

    def add(self, request):
        self.count += "query_range" in request.url

    def after(self, seconds):
        """Moves the clock of the page, and returns the number of queries that this caused."""
        before = self.count
        self.forward(seconds)
        self.probe()
        return self.count - before

    def forward(self, seconds):
        """Moves the clock once the timer that follows a change of the page runs: effects come after the next frame, and a timer that starts later does not fire."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(() => setTimeout(done))))")
        self.page.clock.fast_forward(1000 * seconds)

    def probe(self):
        with self.page.expect_response(re.compile("probe=1")):
            self.page.evaluate("fetch('api/v1/status/buildinfo?probe=1').then(answer => answer.text())")

    def answered(self, act):
        """Acts, and waits for the answer of a query and the figures of its result."""
        with self.page.expect_response(re.compile("query_range")):
            act()
        self.page.get_by_role("button", name="Run", exact=True).wait_for()


def refresh(browser):
    """Each interval asks again after that time, not before; a hidden tab, a fixed end and *off* ask nothing."""
    page = browser.open(panel('page_floats{job=~".+"}', range_input="10m"), has_clock=True)
    page.locator(".legend li").first.wait_for()
    asked = Asked(page)
    assert asked.after(3600) == 0, "a page without refresh asks again"
    for text, seconds in REFRESHES.items():
        page.get_by_label("Refresh").select_option(label=text)
        assert "refresh=" + text in page.url, page.url
        if seconds >= 30:
            assert asked.after(seconds // 2) == 0, text
        for _ in range(2):
            asked.answered(lambda seconds=seconds: asked.forward(seconds))
    page.evaluate(HIDE + "(true)")
    assert asked.after(3600) == 0, "a hidden tab asks again"
    asked.answered(lambda: page.evaluate(HIDE + "(false)"))
    page.get_by_label("Refresh").select_option("off")
    assert "refresh" not in page.url and asked.after(3600) == 0, page.url
    browser.close(page)
    # An interval of the address that is no choice; the graph of a fixed range.
    page = browser.open(panel('page_floats{job=~".+"}', range_input="10m") + "&refresh=42s", has_clock=True)
    page.locator(".legend li").first.wait_for()
    assert page.get_by_label("Refresh").input_value() == "42"
    asked = Asked(page)
    asked.answered(lambda: asked.forward(42))
    asked.answered(lambda: page.get_by_role("button", name="Earlier").click())
    assert asked.after(3600) == 0, "a fixed range is asked for again"
    browser.close(page)


def field_of(page, name):
    values = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query).get("g0." + name)
    return values[0] if values else None


def ranges(browser):
    """Presets, a typed range and two times are taken into the address; the menu closes by Escape and outside of it."""
    page = browser.open(panel('page_floats{job=~".+"}', range_input="10m") + "&tz=utc")
    menu, sheet = page.locator(".menu summary"), page.locator(".sheet")
    for text, want in PRESETS.items():
        menu.click()
        sheet.get_by_role("button", name=text, exact=True).click()
        page.wait_for_url(lambda address, want=want: "range_input=%s" % want in address)
        sheet.wait_for(state="hidden")
        assert menu.inner_text().startswith("Last " + text), menu.inner_text()
    menu.click()
    page.get_by_label("From").fill("2026-11-20T08:00:00")
    page.get_by_label("To", exact=True).fill("2026-11-20T07:00:00")
    page.get_by_text("from has to be before to").wait_for()
    assert page.get_by_role("button", name="Apply").is_disabled()
    page.get_by_label("To", exact=True).fill("2026-11-20T09:30:15")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url(lambda address: "end_input" in address)
    assert (field_of(page, "range_input"), field_of(page, "end_input")) == ("1h30m15s", "2026-11-20 09:30:15"), page.url
    assert menu.get_attribute("title") == "2026-11-20 08:00:00 – 2026-11-20 09:30:15", menu.inner_text()
    menu.click()
    page.keyboard.press("Escape")
    sheet.wait_for(state="hidden")
    menu.click()
    page.locator("h1, .brand").last.click(position={"x": 1, "y": 1}, force=True)
    sheet.wait_for(state="hidden")
    browser.close(page)


def in_one_line(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    middles = page.locator(".controls").first.locator(":scope > *:visible, .looks > *").evaluate_all("all => all.map(e => { const box = e.getBoundingClientRect(); return [e.textContent.slice(0, 30), Math.round(box.top + box.height / 2)]; })")
    assert len(middles) > 1 and max(y for _, y in middles) - min(y for _, y in middles) <= 3, middles


def room(browser):
    """Controls stand in one line at 1,280 px with any look and range; on a phone there is little above the plot."""
    fixed = {"end_input": "2026-11-20 09:30:15", "range_input": "40h"}
    for fields in ({}, fixed, {"scale": "log"}, {"display_mode": "stacked", **fixed}, {"display_mode": "heatmap"}, {"step_input": "60"}, {"show_exemplars": "1", "zero": "1", **fixed},
                   {"lang": "influxql", **fixed}, {"lang": "graphite"}, {"tab": "table"}, {"tab": "table", **fixed}):
        page = browser.open(panel("vector(1)", **fields) + "&tz=utc")
        editor_ready(page)
        in_one_line(page)
        browser.close(page)
    for fields in ({}, fixed, {"scale": "log"}):
        page = browser.open(panel("vector(1)", **fields), width=390, height=844)
        editor_ready(page)
        page.locator(".u-over").wait_for()
        top = page.locator(".plot").bounding_box()["y"]
        print("     390 px wide: plot %d px below the top" % top)
        assert top <= PHONE_PLOT_TOP_MAX, top
        page.get_by_role("button", name="Look", exact=True).click()
        page.get_by_role("button", name="Exemplars").wait_for()
        browser.close(page)
