"""Pictures of every page, light and dark, wide and narrow, compared with the committed ones.

Queries are answered by the server from series at a fixed time; endpoints of its state have the answers of server_state.py.
Hidden is what differs between runs: the duration of queries. A picture differs if more than 1 % of its pixels do."""
import os
import subprocess

import data
import server_state
from driver import editor_ready, panel
from PIL import Image, ImageChops

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "pictures", "ui")
CHANGED_MAX = 0.01
# Difference of a channel that counts as a change; the palette of a committed picture is coarser than that.
CHANNEL_MIN = 40
COLOURS, BYTES_MAX = 128, 60_000
SIZES = ((1280, 800), (360, 740))
END_TEXT = "2026-01-01 00:00:00"


def plan_answer():
    def node(op, text, own, children=(), **more):
        total = own + sum(child["timeMs"] for child in children)
        return {"op": op, "text": text, "timeMs": round(total, 3), "selfMs": own, "seriesSelected": 0, "series": 8, "chunks": 0, "samples": 0, "memoryBytes": 65_536, "shared": None, "children": list(children), **more}
    scan = node("scan", "shop_requests_total", 11.2, seriesSelected=8, chunks=64, samples=1_928, memoryBytes=524_288)
    rate = node("function", "rate(shop_requests_total[5m])", 6.4, [scan])
    again = node("function", "rate(shop_requests_total[5m])", 0.2, shared={"id": 1, "use": "again"})
    errors = node("aggregation", "sum(rate(shop_requests_total[5m]))", 0.7, [again], series=1)
    top = node("aggregation", "sum by (service) (rate(shop_requests_total[5m]))", 1.9, [{**rate, "shared": {"id": 1, "use": "first"}}])
    return {"resultType": "matrix", "result": [], "explain": node("binary", "sum by (service) (rate(shop_requests_total[5m])) / on () group_left () sum(rate(shop_requests_total[5m]))", 0.6, [top, errors])}


def at_end(expr, **fields):
    return panel(expr, run=False, end_input=END_TEXT, **fields) + "&tz=utc"


def views():
    """Name, address, what has to be there before the picture."""
    rate = "sum by (service) (rate(shop_requests_total[5m]))"
    return {
        "query-graph": (at_end(rate, range_input="50m"), ".u-over"), "query-table": (at_end("shop_requests_total", tab="table"), ".rows td"), "query-heatmap": (at_end("shop_latency_seconds", range_input="50m", step_input="60"), "canvas.heat"),
        "query-plan": (at_end("%s / on () group_left () sum(rate(shop_requests_total[5m]))" % rate, tab="plan", range_input="50m"), "table.plan"), "explore": ("explore?tz=utc&search=shop_&metric=shop_requests_total", "section[aria-label=Metric] details"),
        "cardinality": ("cardinality?tz=utc", ".unused"), "storage": ("storage?tz=utc", ".map"), "tenants": ("tenants?tz=utc", ".limit"), "rejects": ("rejects?tz=utc", ".spark"), "queries": ("queries?tz=utc", ".panel + .panel td"), "plan": ("plan?tz=utc", "textarea"),
        "alerts": ("alerts?tz=utc", ".state-firing"), "settings": ("settings?tz=utc", "pre"),
    }


def answers():
    def query(params):
        text = params["query"][0]
        return server_state.own_metrics(text) if "chronolith_" in text else None
    settings = {"http": "127.0.0.1:9595", "data-dir": "./data", "retention": "90d", "self-scrape": "10s", "multitenancy": "true", "query-timeout": "2m", "max-series": "10000", "out-of-order-window": "unlimited", "bucket.url": "s3://metrics/chronolith", "web.enable-admin-api": "false"}
    origins = {"retention": "etc/chronolith.yml:3", "self-scrape": "default", "data-dir": "default", "http": "default", "query-timeout": "default", "web.enable-admin-api": "default"}
    listed = [{"name": name, "value": value, "default": value if origins.get(name) == "default" else "0", "origin": origins.get(name, "flag")} for name, value in settings.items()]
    return {**server_state.answers(), "query": query, "query_range": lambda params: plan_answer() if "explain" in params else None, "status/settings": lambda _: listed,
            "status/config": lambda _: {"yaml": "limits:\n  default:\n    max-series: 10000\n  tenants:\n    billing:\n      max-series: 50000\n"}, "status/buildinfo": lambda _: {"version": "3.16.0", "chronolithVersion": "0.0.0"}}


def environment(browser):
    """What the look of text depends on."""
    font = subprocess.run(["fc-match", "system-ui"], capture_output=True, text=True, check=False).stdout.strip()
    mono = subprocess.run(["fc-match", "monospace"], capture_output=True, text=True, check=False).stdout.strip()
    return "chromium %s\n%s\n%s\n" % (browser.browser.version.split(".")[0], font, mono)


def take(browser, path, ready, width, height):
    """Pictures of one page by scheme."""
    page = browser.open(path, "light", width, height, answers=answers())
    if path.startswith("?"):
        editor_ready(page)
    page.locator(ready).first.wait_for()
    # Durations of queries differ; styles of elements are not what the policy is about.
    page.evaluate("document.querySelectorAll('.panel .bar > [role=status]').forEach(e => { e.style.visibility = 'hidden'; })")
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    found, file = {}, os.path.join("/tmp", "page-%d.png" % os.getpid())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(150)
        page.screenshot(path=file, animations="disabled", caret="hide")
        with Image.open(file) as image:
            found[scheme] = image.convert("RGB")
    os.remove(file)
    browser.close(page)
    return found


def changed_part(found, before):
    """Part of the pixels that differ; 1 for another size."""
    if found.size != before.size:
        return 1.0
    bands = ImageChops.difference(found, before).split()
    strongest = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return sum(strongest.histogram()[CHANNEL_MIN:]) / (found.size[0] * found.size[1])


def save(image, path):
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    assert os.path.getsize(path) <= BYTES_MAX, (path, os.path.getsize(path))


def pictures(browser):
    """With PICTURES=write the pictures are written, otherwise compared."""
    data.write_pictures(browser.url)
    writes, here = os.environ.get("PICTURES") == "write", os.path.join(FOLDER, "environment.txt")
    if writes:
        os.makedirs(FOLDER, exist_ok=True)
        with open(here, "w", encoding="utf-8") as file:
            file.write(environment(browser))
    else:
        with open(here, encoding="utf-8") as file:
            if file.read() != environment(browser):
                print("     not compared: this browser or its fonts are not those of the pictures (environment.txt)")
                return
    faults, count, most = [], 0, 0.0
    for width, height in SIZES:
        for name, (path, ready) in views().items():
            for scheme, found in take(browser, path, ready, width, height).items():
                file = os.path.join(FOLDER, "%s-%s-%d.png" % (name, scheme, width))
                count += 1
                if writes:
                    save(found, file)
                    continue
                with Image.open(file) as before:
                    part = changed_part(found, before.convert("RGB"))
                most = max(most, part)
                if part > CHANGED_MAX:
                    faults.append("%s: %.1f %%" % (os.path.basename(file), 100 * part))
                    found.save("/tmp/changed-" + os.path.basename(file))
    print("     %d pictures%s" % (count, " written" if writes else ", at most %.2f %% of the pixels of one changed" % (100 * most)))
    assert not faults, "changed (new ones in /tmp/changed-*.png; PICTURES=write replaces those of docs/pictures/ui): " + ", ".join(faults)
