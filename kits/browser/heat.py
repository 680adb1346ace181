"""Cells of a heatmap, read back from its canvas and from what the page says about them, against the buckets of the API."""
import calendar
import math
import re
import time as clock
import urllib.parse

from driver import RUN, base_of, panel

COLUMNS = 5
# Margin on the left and room below the cells, as heatmap.js has them; wrong ones fail the times of the columns.
LEFT, BOTTOM, TOP = 64, 34, 6
# A count is read from one of 255 steps of opacity, of which the largest count has all.
COUNT_ERROR = 0.006

# For some columns, every few pixels of height: opacity at that point, and the text below the canvas with the pointer there.
READ = """async ([at, heights]) => {
  const canvas = document.querySelector('canvas.heat'), box = canvas.getBoundingClientRect(), ctx = canvas.getContext('2d'), scale = canvas.width / box.width, probe = document.createElement('i'), found = [];
  probe.style.color = 'var(--heat)'; document.body.append(probe);
  const heat = getComputedStyle(probe).color.match(/\\d+/g).slice(0, 3).map(Number); probe.remove();
  for (const x of at) for (const y of heights) {
    canvas.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: box.left + x, clientY: box.top + y }));
    await new Promise(resolve => setTimeout(resolve));
    const [r, g, b, alpha] = ctx.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data;
    // Lines of quantiles have another colour.
    const isCell = alpha === 0 || Math.abs(r - heat[0]) + Math.abs(g - heat[1]) + Math.abs(b - heat[2]) < 40;
    if (isCell) found.push([x, alpha, document.querySelector('figure output').textContent]);
  }
  return found;
}"""
TEXT = re.compile(r"(\S+ \S+) +\((\S+), (\S+)\] +(\S+) of (\S+), (\S+) %")


def wanted_cells(histogram):
    """Bounds and count of each bucket that is not empty."""
    return {(float(lower), float(upper)): float(count) for _, lower, upper, count in histogram["buckets"] if float(count)}


def wanted_columns(result):
    """Buckets by time, of native histograms or of series with `le`."""
    if "histograms" in result[0]:
        return {time: wanted_cells(histogram) for time, histogram in result[0]["histograms"]}
    columns = {}
    bounds = sorted((float(one["metric"]["le"]), dict(one["values"])) for one in result)
    for time in bounds[0][1]:
        lower, before, columns[time] = 0.0, 0.0, {}
        for upper, values in bounds:
            if float(values[time]) > before:
                columns[time][(lower, upper)] = float(values[time]) - before
            lower, before = upper, float(values[time])
    return columns


def near(cell, cells):
    """The key in `cells` that is this one in four digits."""
    for key in cells:
        if all(a == b or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= 6e-4 * max(abs(a), abs(b))) for a, b in zip(key, cell)):
            return key
    return None


def read_cells(page, want, step):
    """Counts by time and bounds from the canvas: the opacity of each cell, and its bounds from the text of the pointer."""
    width, height = page.evaluate("(e => [e.clientWidth, e.clientHeight])(document.querySelector('canvas.heat'))")
    times = page.evaluate("""async ([base, search]) => {
        const [{ run }, { readPanel }] = await Promise.all(["query/languages.js", "query/panel.js"].map(path => import(base + "/" + path)));
        const { times, series } = await run(readPanel(new URLSearchParams(search), 0), new AbortController().signal);
        return series[0].histograms ? times.filter((_, k) => series[0].histograms[k]) : times;
    }""", [base_of(page), urllib.parse.urlparse(page.url).query])
    chosen = [time for time in times if time in want][:: max(1, len(want) // COLUMNS)][-COLUMNS:]
    span = times[-1] + step - times[0]
    at = [LEFT + (time + step / 2 - times[0]) / span * (width - LEFT) for time in chosen]
    most = max(count for cells in want.values() for count in cells.values())
    found = {time: {} for time in chosen}
    for x, alpha, text in page.evaluate(READ, [at, list(range(TOP + 3, height - BOTTOM, 4))]):
        time, parts = chosen[at.index(x)], TEXT.match(text)
        if alpha == 0:
            continue
        assert parts, "no text for a cell that is drawn: %r" % text
        cell = (number(parts[2]), number(parts[3]))
        found[time].setdefault(cell, []).append(most * ((alpha / 255 - 0.1) / 0.9) ** 2)
        assert calendar.timegm(clock.strptime(parts[1], "%Y-%m-%d %H:%M:%S")) == time, (parts[1], time)
    # The middle one: edges of a cell are mixed with their neighbours.
    return {time: {cell: sorted(counts)[len(counts) // 2] for cell, counts in cells.items()} for time, cells in found.items()}, most


def number(text):
    return float(text[:-1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[text[-1]] if text[-1] in "kMG" else float(text)


def heatmap(browser, newest):
    """Cells are the buckets of the API, for exponential, custom and classic histograms."""
    step, start, end = 15, newest - 240, newest
    for expr, mode in (('page_one{job="a"}', {}), ('page_custom{job="a"}', {}), ('page_bucket{le=~".+"}', {"display_mode": "heatmap"})):
        text = clock.strftime("%Y-%m-%d %H:%M:%S", clock.gmtime(end))
        page = browser.open(panel(expr, range_input="4m", step_input=str(step), end_input=text, **mode) + "&tz=utc")
        page.locator("canvas.heat").first.wait_for()
        assert page.get_by_role("button", name="Heatmap").get_attribute("aria-pressed") == "true", "a heatmap is drawn, but its mode is not marked"
        query = expr.replace("}", ',run="%s"}' % RUN)
        want = wanted_columns(browser.get("api/v1/query_range", query=query, start=start, end=end, step=step)["result"])
        found, most = read_cells(page, want, step)
        assert len(found) == COLUMNS, (expr, sorted(found))
        for time, cells in found.items():
            left = dict(want[time])
            for cell, count in cells.items():
                key = near(cell, left)
                assert key is not None, (expr, time, cell, want[time])
                assert abs(left.pop(key) - count) <= COUNT_ERROR * most, (expr, time, cell, count, want[time])
            assert not left, "%s at %s: cells are not drawn: %s" % (expr, time, left)
        print("     %s: %d cells of %d columns read back" % (expr, sum(len(cells) for cells in found.values()), len(found)))
        browser.close(page)
