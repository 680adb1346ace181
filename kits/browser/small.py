"""The database of InfluxQL, details of completions, the navigation of a phone, labels of heatmaps."""
import io
import json
import random
import urllib.parse

import tsdbwire as wire
from driver import RUN, editor_ready, panel
from PIL import Image

END, END_TEXT, STEP = 1795165200, "2026-11-20 09:00:00", 60
# Names that the server has, and the one that is taken where none was chosen.
DATABASES = [([], None), (["one"], "one"), (["_internal", "one"], "one"), (["one", "two"], None), (["_internal"], None), (["<b>"], "<b>"), (["a b"], "a b"), (["_internal", "a", "b"], None), (["ONE"], "ONE"), (["prometheus"], "prometheus")]
# Texts drawn on a canvas, with the boxes that they take.
DRAWN = """const fill = CanvasRenderingContext2D.prototype.fillText; window.drawn = [];
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most) {
  const width = Math.min(this.measureText(text).width, most ?? Infinity), left = { right: x - width, center: x - width / 2 }[this.textAlign] ?? x, top = this.textBaseline === 'middle' ? y - 6 : y;
  drawn.push({ text, left, right: left + width, top, bottom: top + 12 });
  return fill.apply(this, arguments);
};"""


def answer_of(series):
    return lambda route: route.fulfill(json={"results": [{"statement_id": 0, "series": series}]})


def database(browser):
    for names, want in DATABASES:
        page = browser.open(panel("vector(1)"))
        series = [{"name": "databases", "columns": ["name"], "values": [[name] for name in names]}] if names else []
        page.route("**/query", answer_of(series))
        with page.expect_response(lambda answer: answer.url.endswith("/query")):
            page.get_by_role("button", name="InfluxQL").click()
        field = page.get_by_label("Database")
        if want:
            page.wait_for_url(lambda address, want=want: urllib.parse.parse_qs(urllib.parse.urlparse(address).query).get("g0.db") == [want])
            assert field.input_value() == want
        else:
            page.locator("datalist#databases option").first.wait_for(state="attached") if names else page.wait_for_timeout(100)
            assert field.input_value() == "" and "g0.db" not in page.url, (names, page.url)
        assert page.locator("datalist#databases option").count() == len(names)
        page.unroute_all(behavior="ignoreErrors")
        browser.close(page)
    # A database that was chosen stays.
    page = browser.open(panel("vector(1)", lang="influxql", db="mine"))
    page.route("**/query", lambda route: route.fulfill(json={"results": [{"series": [{"values": [["one"]]}]}]}))
    page.reload()
    page.locator("datalist#databases option").first.wait_for(state="attached")
    assert page.get_by_label("Database").input_value() == "mine"
    page.unroute_all(behavior="ignoreErrors")
    browser.close(page)


def details(browser):
    """Each metric of the list has type and help next to its name; a long help is cut there."""
    helps = {"small_%s_%d" % (RUN, k): "help number %d %s" % (k, "and so on " * (9 * (k % 2))) for k in range(10)}
    series = [({"__name__": name}, [(END * 1000, 1.0)]) for name in helps]
    status, _, answer = wire.Client(browser.url.rstrip("/")).request("POST", "/api/v1/write", wire.snappy_literal(wire.encode_rw1(series, [(name, 2, text.strip(), "") for name, text in helps.items()])), {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"})
    assert status in (200, 204), (status, answer)
    page = browser.open(panel("vector(1)", tab="table"))
    editor_ready(page)
    page.locator(".editor .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("small_%s_" % RUN)
    page.get_by_role("option").nth(9).wait_for()
    texts = page.get_by_role("option").all_inner_texts()
    for name, text in helps.items():
        found = next(one for one in texts if name in one)
        assert "gauge" in found and ("help number %s" % name[-1]) in found and len(found) < len(name) + 70, found
        assert ("…" in found) == (len(text) > 60), found
    browser.close(page)


def edge(page, nav, side):
    """Mean brightness of the outermost and of an inner column of the navigation's card at one end."""
    with Image.open(io.BytesIO(page.screenshot(clip=nav))) as image:
        grey, x = image.convert("L"), 1 if side == "left" else image.width - 2
        rows = [2, 3, 4]
        return sum(grey.getpixel((x, y)) for y in rows) / len(rows)


def navigation(browser):
    """Where the navigation has more, its end is shaded, in both schemes; the page in view is in it."""
    for scheme in ("light", "dark"):
        page = browser.open("settings", scheme, 390, 844)
        nav = page.locator("nav[aria-label=Pages]")
        box, link = nav.bounding_box(), page.locator("nav [aria-current]").bounding_box()
        assert link["x"] >= box["x"] - 1 and link["x"] + link["width"] <= box["x"] + box["width"] + 1, (box, link)
        assert nav.evaluate("e => e.scrollWidth > e.clientWidth"), "the navigation does not scroll"
        # What loads later moves the ends, so the positions are set again until the picture is right.
        for _ in range(50):
            shades = {}
            for at in (0, 0.5, 1):
                nav.evaluate("(e, at) => { e.scrollLeft = at * (e.scrollWidth - e.clientWidth); }", at)
                shades[at] = {side: edge(page, box, side) for side in ("left", "right")}
            plain = shades[0]["left"]
            is_plain = abs(shades[1]["right"] - plain) < 4
            if is_plain and all(abs(shades[at][side] - plain) > 20 for at, side in ((0, "right"), (0.5, "left"), (0.5, "right"), (1, "left"))):
                break
            page.wait_for_timeout(100)
        else:
            raise AssertionError(shades)
        browser.close(page)
        page = browser.open("settings", scheme)
        wide = page.locator("nav[aria-label=Pages]").bounding_box()
        assert abs(edge(page, wide, "left") - edge(page, wide, "right")) < 4, "a navigation that is whole is shaded"
        browser.close(page)


def buckets(bounds, columns):
    rng = random.Random(len(bounds))
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"le": le}, "values": [[END - STEP * k, str((at + 1) * rng.randrange(5, 50))] for k in reversed(range(columns))]} for at, le in enumerate(bounds)]}})


def heat_labels(browser):
    """Texts of both axes of a heatmap do not touch, and are inside of the canvas."""
    powers = ["%r" % (2.0 ** k) for k in range(-20, 40)]
    kinds = [powers, powers[:5], powers[8:11], ["%.10f" % (0.0001 * 1.1 ** k) for k in range(90)], ["0.0002441", "0.0004106", "+Inf"], ["1", "+Inf"], ["%d" % (10 ** k) for k in range(18)],
             ["%.17f" % (1 / 3 + k / 7) for k in range(30)], ["-%d" % k for k in range(3000, 0, -100)], ["%d" % k for k in range(150)]]
    for bounds in kinds:
        for width in (1280, 390):
            text = buckets(bounds, 60)
            page = browser.open(panel("vector(1)", run=False, range_input="59m", step_input=str(STEP), end_input=END_TEXT, display_mode="heatmap") + "&tz=utc", width=width, answers={"query_range": lambda _, text=text: text}, script=DRAWN)
            page.locator("canvas.heat").wait_for()
            for _ in range(40):
                drawn = page.evaluate("drawn")
                if drawn:
                    break
                page.wait_for_timeout(50)
            # The last drawing: each begins with the lowest bound.
            first = max(idx for idx, one in enumerate(drawn) if one["text"] == drawn[0]["text"] and one["top"] == drawn[0]["top"])
            drawn = drawn[first:]
            assert len(drawn) >= 3 and all(one["left"] >= 0 for one in drawn), (bounds[:3], width, drawn)
            touching = [(a["text"], b["text"]) for k, a in enumerate(drawn) for b in drawn[k + 1:] if a["left"] < b["right"] + 2 and b["left"] < a["right"] + 2 and a["top"] < b["bottom"] + 1 and b["top"] < a["bottom"] + 1]
            assert not touching, (bounds[:3], width, touching)
            browser.close(page)


def small(browser):
    database(browser)
    details(browser)
    navigation(browser)
    heat_labels(browser)
