"""Pictures of every page, light and dark, wide and narrow, compared with the committed ones.

A server has two days of the world of `make demo`, the first in blocks; normalize.py replaces values that differ between
runs. Rules, memory by part, the server's own metrics and running queries, which the world lacks, are made up.
A picture differs if more than 1 % of its pixels do."""
import os
import subprocess
import urllib.parse

import normalize
import server_state
import tsdbwire as wire
import world
from driver import NotRun, editor_ready, panel
from PIL import Image, ImageChops

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "pictures", "ui")
CHANGED_MAX = 0.01
# Difference of a channel that counts as a change; the palette of a committed picture is coarser than that.
CHANNEL_MIN = 40
COLOURS, BYTES_MAX = 128, 60_000
SIZES = ((1280, 800), (360, 740))
SERVICES = 8
# 40 minutes of an incident begin at 09:00.
END_TEXT, RANGE = "2026-11-20 10:00:00", "80m"
ERRORS = 'sum by (service) (rate(http_requests_total{code="500"}[1m]))'
SHARE = "%s / on (service) sum by (service) (rate(http_requests_total[1m]))" % ERRORS
LATENCY = 'sum(rate(http_request_duration_seconds{service="inventory"}[1m]))'
QUEUE = 'queue_length{service="inventory"}'
CONFIG = "limits:\n  default:\n    max-series: 10000\n  tenants:\n    billing:\n      max-series: 50000\n"


def at_end(expr, **fields):
    return panel(expr, run=False, end_input=END_TEXT, **fields) + "&tz=utc&tenant=shop"


def views():
    """Name, address, what has to be there before the picture; buttons that are pressed before that."""
    def page(name, ready, *buttons, **params):
        return (name + "?" + urllib.parse.urlencode({"tz": "utc", "tenant": "shop", **params}), ready, *buttons)
    return {
        "query-graph": (at_end(ERRORS, range_input=RANGE, show_exemplars="1"), ".u-over"), "query-table": (at_end(QUEUE, tab="table"), ".rows td"), "query-heatmap": (at_end(LATENCY, range_input=RANGE, step_input="60", display_mode="heatmap"), "canvas.heat"),
        "query-plan": (at_end(SHARE, tab="plan", range_input=RANGE), "table.plan"), "explore": page("explore", "section[aria-label=Metric] details", search="http_", metric="http_requests_total"),
        "cardinality": page("cardinality", ".unused"), "storage": page("storage", ".map"), "tenants": page("tenants", ".limits, .others"), "rejects": page("rejects", ".spark"), "queries": page("queries", ".panel + .panel td"), "plan": page("plan", "textarea"),
        "alerts": page("alerts", ".alert", "CheckoutLatencyHigh0"), "alerts-list": page("alerts", ".alert", view="list"), "rules": page("rules", ".rule", search="group-1 cart"), "rules-plot": page("rules", ".rule-plot .u-over", "CheckoutLatencyHigh0", "Plot", search="group-0 checkout"), "settings": page("settings", "pre"),
    }


def answers():
    def query(params):
        text = params["query"][0]
        return server_state.own_metrics(text) if "chronolith_" in text else None

    def query_range(params):
        """Lines of the query of a rule, which the world has no series for."""
        if "http_request_duration_seconds_bucket" not in params["query"][0]:
            return None
        start, step = float(params["start"][0]), float(params["step"][0])
        count = int((float(params["end"][0]) - start) / step) + 1
        return {"resultType": "matrix", "result": [{"metric": {"zone": zone}, "values": [[start + k * step, "%.3f" % (0.3 + at / 10 + (0.4 if 100 < k < 180 else 0) + (k * (7 + at) % 11) / 60)] for k in range(count)]} for at, zone in enumerate(("eu-1", "eu-2"))]}
    made = server_state.answers()
    return {"query": query, "query_range": query_range, "rules": lambda _: server_state.rules(200, 60, end_ms=normalize.END_MS), "status/memory": made["status/memory"], "status/active_queries": made["status/active_queries"], "status/bucket": made["status/bucket"],
            "status/config": lambda _: {"yaml": CONFIG}, "status/buildinfo": lambda _: {"version": "3.16.0", "chronolithVersion": "0.0.0"}}


def ask(url):
    """Each query once, so that lists of queries have them; returns their texts."""
    texts = [ERRORS, SHARE, LATENCY, QUEUE]
    for text in texts:
        params = urllib.parse.urlencode({"query": text, "start": "2026-11-20T08:40:00Z", "end": "2026-11-20T10:00:00Z", "step": "60"})
        code, _, answer = wire.Client(url).request("GET", "/api/v1/query_range?" + params, b"", {"X-Scope-OrgID": world.SHOP})
        assert code == 200, (text, answer[:300])
    return texts


def environment(browser):
    """What the look of text depends on."""
    font = subprocess.run(["fc-match", "system-ui"], capture_output=True, text=True, check=False).stdout.strip()
    mono = subprocess.run(["fc-match", "monospace"], capture_output=True, text=True, check=False).stdout.strip()
    return "chromium %s\n%s\n%s\n" % (browser.browser.version.split(".")[0], font, mono)


def take(browser, path, ready, buttons, width, height, asked):
    """Pictures of one page by scheme."""
    now = normalize.END_MS / 1000 if path.startswith(("alerts", "rules")) else None
    page = browser.open(path, "light", width, height, answers=answers(), normalize=normalize.answers(asked), now=now)
    if path.startswith("?"):
        editor_ready(page)
    for name in buttons:
        page.get_by_role("button", name=name, exact=True).first.click()
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
    server, demo = browser.args.server, browser.args.demo
    if not server or not demo:
        raise NotRun("--server and --demo name no programs")
    writes, here = os.environ.get("PICTURES") == "write", os.path.join(FOLDER, "environment.txt")
    if writes:
        os.makedirs(FOLDER, exist_ok=True)
        with open(here, "w", encoding="utf-8") as file:
            file.write(environment(browser))
    else:
        with open(here, encoding="utf-8") as file:
            if file.read() != environment(browser):
                raise NotRun("this browser or its fonts are not those of the pictures (environment.txt)")
    with world.two_days(server, demo, services=SERVICES) as (url, _), browser.at(url) as other:
        count, most, faults = compare(other, ask(url), writes)
    print("     %d pictures%s" % (count, " written" if writes else ", at most %.2f %% of the pixels of one changed" % (100 * most)))
    assert not faults, "changed (new ones in /tmp/changed-*.png; PICTURES=write replaces those of docs/pictures/ui): " + ", ".join(faults)


def compare(browser, asked, writes):
    """Number of pictures, the largest changed part of one, and which changed too much."""
    faults, count, most = [], 0, 0.0
    for width, height in SIZES:
        for name, (path, ready, *buttons) in views().items():
            for scheme, found in take(browser, path, ready, buttons, width, height, asked).items():
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
    return count, most, faults
