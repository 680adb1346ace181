"""Pages about the server at 1,280 px: no column is cut, long texts are short with the whole text on request, no box of a treemap has part of a word."""
import server_state

LONG = '{__name__="http_requests_total",path="%s"}' % ("/a-long-path" * 90)
SENDER, TENANT = "2001:db8::1234:5678 (Prometheus/3.4.1 %s)" % ("x" * 160), "tenant-" + "t" * 143
NAMES = ["a", "wal", "series", "out of order", "bucket cache", "open_chunks_of_all_tenants", "memory of the process", "x" * 40, "i j k l m n", "postings"]


def answers(long):
    rejects, tops, active, tenants = server_state.rejects(), server_state.top_queries(), server_state.active_queries(), server_state.tenants()
    if long:
        for one in rejects["examples"][:3]:
            one.update(series=LONG, sender=SENDER, tenant=TENANT)
        for one in tops["queries"][:3] + active["queries"][:1]:
            one.update(query="sum(%s)" % LONG, tenant=TENANT)
    return {"status/rejects": lambda _: rejects, "status/top_queries": lambda _: tops, "status/active_queries": lambda _: active, "status/tenants": lambda _: tenants}


def wide(browser):
    for long in (False, True):
        for path, regions in (("rejects", ["Rejected series", "Rejects by reason"]), ("queries", ["Running queries", "Slowest queries"]), ("tenants", ["Tenants"])):
            page = browser.open(path + "?tz=utc", answers=answers(long))
            for name in regions:
                region = page.get_by_role("region", name=name)
                region.locator("tbody tr").first.wait_for()
                inside, whole, cut = region.evaluate("""e => [e.clientWidth, e.scrollWidth, [...e.querySelectorAll('th, td')].filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.textContent.slice(0, 40))]""")
                assert whole <= inside and not cut, (path, name, long, inside, whole, cut)
                high = region.locator("tbody tr").evaluate_all("all => Math.max(...all.map(e => e.getBoundingClientRect().height))")
                assert high <= 190, (path, name, long, high)
            if long and path != "tenants":
                text = LONG if path == "rejects" else "sum(%s)" % LONG
                region = page.get_by_role("region", name=regions[0])
                assert text not in region.inner_text()
                region.get_by_role("button", name="all {:,} characters".format(len(text))).first.click()
                region.get_by_text(text).first.wait_for()
                region.get_by_role("button", name="less").first.click()
                region.get_by_text(text).first.wait_for(state="detached")
            browser.close(page)
    limits(browser)
    for width in (1280, 1000, 720, 390):
        treemap(browser, width)


def limits(browser):
    """Bars of limits that are used by 1 % and more; the others are folded."""
    uses = [0, 1, 9, 10, 11, 50, 100, 500, 999, 1000]
    tenant = {"tenant": "t", "samplesAccepted": 1, "samplesRejected": 0, "queries": 1, "memoryBytes": 1,
              "limits": [{"name": "limit_%d" % use, "setting": None, "used": use, "limit": 1000} for use in uses] + [{"name": "endless", "setting": None, "used": 7, "limit": None}]}
    page = browser.open("tenants", answers={"status/tenants": lambda _: {"tenants": [tenant], "total": 1, "overflow": False}})
    shown = page.get_by_role("region", name="Tenants").locator(".limit:visible")
    shown.first.wait_for()
    assert shown.count() == page.locator(".limit .bars:visible").count() == sum(use >= 10 for use in uses), shown.all_inner_texts()
    page.get_by_text("4 below 1 % or without limit").click()
    page.get_by_text("endless").wait_for()
    assert shown.count() == len(uses) + 1 and page.locator(".limit .bars:visible").count() == sum(use >= 10 for use in uses)
    browser.close(page)


def treemap(browser, width):
    """Text of a box is whole: in the box, and no word in two lines."""
    memory = server_state.memory(["tenant-%d" % k for k in range(20)])
    for k, name in enumerate(NAMES):
        memory["parts"]["server"][name.replace(" ", "_")] = {"bytes": (40 << 20) >> k, "count": 1}
    page = browser.open("storage", width=width, answers={"status/memory": lambda _: memory})
    page.locator(".map li").first.wait_for()
    faults = page.locator(".map li").evaluate_all("""all => all.flatMap(box => {
        const outer = box.getBoundingClientRect(), found = [];
        for (const part of box.querySelectorAll('b:not(.hidden), span:not(.hidden)')) {
            const text = part.firstChild, range = document.createRange();
            for (const word of text.data.matchAll(/\\S+/g)) {
                range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
                const boxes = [...range.getClientRects()];
                if (boxes.length > 1 || boxes.some(b => b.right > outer.right || b.bottom > outer.bottom)) found.push([word[0], text.data, Math.round(outer.width), Math.round(outer.height)]);
            }
        }
        return found;
    })""")
    shown = page.locator(".map li b:not(.hidden)").count()
    assert not faults and shown >= 8, (width, shown, faults)
    assert page.locator(".map li").evaluate_all("all => all.every(box => box.title)")
    browser.close(page)
