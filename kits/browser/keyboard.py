"""Each page by the keyboard alone: reached with its keys, used with Tab, Enter and letters."""
import server_state
from driver import editor_ready, reach


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def go(page, key, heading):
    page.evaluate("document.activeElement.blur()")
    press(page, "g", key)
    page.get_by_role("heading", name=heading, exact=True).wait_for()


def query(page):
    go_to = page.locator(".editor .cm-content").first
    page.evaluate("document.activeElement.blur()")
    press(page, "g", "q")
    editor_ready(page)
    press(page, "Escape", "?")
    page.get_by_role("dialog").wait_for()
    press(page, "Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.evaluate("document.activeElement.blur()")
    press(page, "/", "Control+a")
    page.keyboard.type("vector(41) + 1")
    assert go_to.inner_text() == "vector(41) + 1"
    press(page, "Enter")
    page.wait_for_url(lambda address: "vector%2841%29" in address)
    press(page, "Escape")
    reach(page, "Table")
    press(page, "Enter")
    page.locator(".rows .value").get_by_text("42").wait_for()


def explore(page):
    go(page, "e", "Explore")
    reach(page, "Search metrics")
    page.keyboard.type("page_fl")
    page.get_by_role("link", name="page_floats").wait_for()
    reach(page, "page_floats")
    press(page, "Enter")
    page.get_by_role("heading", name="page_floats").wait_for()
    reach(page, "Paths")
    press(page, "Enter")
    page.get_by_role("navigation", name="Path").wait_for()
    reach(page, "Metrics")


def cardinality(page):
    go(page, "c", "Cardinality of the head")
    reach(page, "Series by metric")
    press(page, "Tab", "Enter")
    page.wait_for_url(lambda address: "match=" in address)
    page.get_by_role("heading", name="Cardinality of head and blocks").wait_for()
    reach(page, "All series")
    press(page, "Enter")
    page.get_by_role("heading", name="Cardinality of the head").wait_for()
    reach(page, "Order")
    press(page, "ArrowDown")
    page.wait_for_url(lambda address: "sort=unused" in address)


def storage(page):
    go(page, "s", "Storage")
    reach(page, "Blocks")
    press(page, "End")
    reach(page, "Memory")


def cluster(page):
    go(page, "k", "Cluster")
    page.get_by_text("This server has role all").wait_for()


def tenants(page):
    go(page, "n", "Tenants")
    reach(page, "Filter tenants")
    page.keyboard.type("bill")
    page.get_by_role("region", name="Tenants").get_by_text("billing").wait_for()
    assert page.get_by_role("region", name="Tenants").locator("tbody tr").count() == 1
    reach(page, "Order")
    press(page, "ArrowDown")
    page.wait_for_url(lambda address: "sort=memory" in address)


def rejects(page):
    go(page, "j", "Rejected samples")
    reach(page, "Reason")
    press(page, "s")
    page.wait_for_url(lambda address: "reason=series_limit" in address)
    reach(page, "Minutes of series limit, shop")
    press(page, "Enter")
    page.get_by_role("heading", name="series limit, shop").wait_for()
    reach(page, "Rejects per minute")
    reach(page, "Rejected series")


def queries(page):
    go(page, "r", "Running queries")
    reach(page, "End query 1")
    reach(page, "Order")
    press(page, "ArrowDown")
    page.wait_for_url(lambda address: "sort=count" in address)
    reach(page, "Slowest queries")


def plan(page):
    go(page, "p", "Plan of a query")
    reach(page, "Line of the slow query log")
    page.keyboard.type('{"plan":{"op":"outer","timeMs":2,"children":[{"op":"inner","timeMs":1}]}}')
    page.get_by_role("region", name="Operators").get_by_text("inner").wait_for()
    reach(page, "Operators of outer")
    press(page, "Enter")
    page.get_by_role("region", name="Operators").get_by_text("inner").wait_for(state="detached")


def alerts(page):
    go(page, "a", "Alerts")
    page.locator(".list > li").first.wait_for()
    press(page, "/")
    page.keyboard.type("severity=page cart")
    page.wait_for_url(lambda address: "severity" in address)
    reach(page, "Alerts")
    press(page, "Tab", "Enter")
    page.locator(".list .detail").wait_for()
    reach(page, "Plot")
    reach(page, "Query")
    press(page, "/")
    reach(page, "Show")
    press(page, "ArrowDown")
    page.wait_for_url(lambda address: "view=list" in address)
    assert page.locator(".list .alert").count() > 0 and page.locator(".list .rule").count() == 0
    reach(page, "Alerts")
    press(page, "PageDown")


def rules(page):
    go(page, "l", "Rules")
    page.locator(".list > li").first.wait_for()
    reach(page, "Filter by text or label=value")
    page.keyboard.type("cart")
    page.wait_for_url(lambda address: "search=cart" in address)
    reach(page, "Type")
    press(page, "r")
    page.wait_for_url(lambda address: "type=recording" in address)
    reach(page, "Rules")
    press(page, "Tab", "Enter")
    page.locator(".list .group [aria-expanded=false]").wait_for()
    press(page, "Enter", "Tab", "Enter")
    page.locator(".list .detail").wait_for()
    reach(page, "Plan")


def settings(page):
    go(page, "t", "Settings")
    reach(page, "Filter settings")
    page.keyboard.type("self-scrape")
    page.wait_for_url(lambda address: "search=self-scrape" in address)
    assert page.get_by_role("region", name="Settings").locator("tbody tr").count() == 1
    reach(page, "Settings")


PAGES = [query, explore, cardinality, storage, cluster, tenants, rejects, queries, plan, alerts, rules, settings]


def keyboard(browser):
    state = {name: answer for name, answer in server_state.answers().items() if name != "status/storage"}
    for use in PAGES:
        page = browser.open("settings" if use is plan else "plan", answers={} if use in (query, explore, settings) else state)
        page.locator("main").click(position={"x": 2, "y": 2})
        try:
            use(page)
        except Exception as error:
            raise AssertionError("%s: %s" % (use.__name__, error)) from error
        browser.close(page)
