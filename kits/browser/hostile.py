"""Texts that want to be more than text: each has to appear as it was written, on every page.

Each text ends with an element of its own, so that any text that becomes markup is seen: its element is in the
document, or its text is not. `unsafe` proves that, for each text and way to get it wrong: a page without the policy
writes it in the wrong way, and the same check has to see it."""
import json
import time
import urllib.parse

import server_state
import tsdbwire as wire
from driver import RUN, panel

# Strings of well-known lists (OWASP's filter evasion sheet, the big list of naughty strings) and of reported cases.
PAYLOADS = [
    "<script>window.hit=1</script>", "<img src=x onerror=window.hit=1>", "<svg onload=window.hit=1>", "<body onload=window.hit=1>", "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>", "<details open ontoggle=window.hit=1>",
    "<a href=javascript:window.hit=1>x</a>", "<math><mtext></mtext><mglyph><style><img src=x onerror=window.hit=1>", "<input autofocus onfocus=window.hit=1>", "<video><source onerror=window.hit=1></video>", "<object data=javascript:window.hit=1></object>", "<base href=//x.invalid/>",
    "<link rel=stylesheet href=//x.invalid/a.css>", "<meta http-equiv=refresh content=0;url=//x.invalid>", "<form action=//x.invalid><button>go", "<template><img></template>", "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>", "<scr<script>ipt>window.hit=1</scr</script>ipt>",
    "<SCRIPT SRC=//x.invalid/a.js></SCRIPT>", "<img/src=x/onerror=window.hit=1>", "<<img src=x onerror=window.hit=1>>", "<!--<img src=\"--><img src=x onerror=window.hit=1>", "<![CDATA[<img src=x onerror=window.hit=1>]]>", "</td></tr></table><h1>out</h1>", "</title><h1>out</h1>", "</textarea><h1>out</h1>",
    "\" onmouseover=\"window.hit=1", "' onmouseover='window.hit=1", "\" autofocus onfocus=window.hit=1 x=\"", "`onmouseover=window.hit=1`", "\"><img src=x onerror=window.hit=1>", "'><svg/onload=window.hit=1>", "\\\"><b>out</b>",
    "javascript:window.hit=1", "JaVaScRiPt:window.hit=1", "java\tscript:window.hit=1", "data:text/html,<script>opener.hit=1</script>", "vbscript:msgbox(1)", "//x.invalid/%2e%2e",
    "${window.hit=1}", "{{constructor.constructor('window.hit=1')()}}", "#{7*7}", "<%= 7*7 %>", "{% raw %}", "__proto__", "constructor", "toString", "$& $1 $` $'",
    "\u202ereversed\u202c", "\u2066isolated\u2069", "\u200bzero\u200bwidth\u200d\u2060", "\ufeffmark", "a\u0301\u0323" * 20, "\u0001\u0007\u001b[31mred\u001b[0m", "line\none\r\ntwo\ttab", "\u2028separator\u2029",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f4\u200d\u2620\ufe0f", "\U0001d573\U0001d58a\U0001d591\U0001d591\U0001d594", "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd", "\u7530\u4e2d\u3055\u3093", "\uff1cscript\uff1e", "l" * 900,
    "' OR 1=1; DROP TABLE series;--", "\"; DELETE FROM x; --", "} or {__name__=~\".+\"", "$(touch /tmp/x) `id` | ls", "../../../../etc/passwd", "%3Cscript%3E %00 %n%s", "&lt;b&gt; &amp; &#x3c;", "=cmd|' /C calc'!A0",
    "expression(window.hit=1)", "}*{display:none}", "</style><style>*{display:none}", "url(javascript:window.hit=1)", "@import '//x.invalid/a.css';", "NaN", "-Infinity", "null", "undefined", "[object Object]",
]
PLAN_TEXT_MAX = 400
TEXTS = ["%s<q id=q%d>" % (payload, k) for k, payload in enumerate(PAYLOADS)]
assert len(set(TEXTS)) == len(TEXTS) >= 60

# Texts of the document, of titles and of fields, after whatever is in view of each list; and what must not be there.
SURVEY = """async () => {
  const texts = [], strange = [];
  const read = () => {
    texts.push(document.body.textContent, document.body.innerText);
    for (const e of document.querySelectorAll('*')) {
      for (const name of ['title', 'aria-label', 'placeholder', 'value']) if (e.getAttribute(name)) texts.push(e.getAttribute(name));
      if (typeof e.value === 'string') texts.push(e.value);
      if (e.shadowRoot) texts.push(e.shadowRoot.textContent, e.shadowRoot.querySelector('.cm-content')?.innerText ?? '');
      for (const { name } of e.attributes) if (name.startsWith('on') || name === 'srcdoc' || name === 'autofocus') strange.push(e.tagName + ' ' + name);
      if (/^(Q|IFRAME|OBJECT|IMG|VIDEO|MATH|BASE|FORM|TEMPLATE|STYLE)$/i.test(e.tagName) || (e.tagName === 'SCRIPT' && e.type !== 'module')) strange.push(e.tagName);
      const href = e.getAttribute('href') ?? e.getAttribute('src') ?? '';
      if (/^[\\u0000-\\u0020]*(j\\s*a\\s*v\\s*a\\s*s|data|vbs)/i.test(href) || (/^(\\/\\/|https?:)/.test(href) && new URL(href, location).host !== location.host)) strange.push(e.tagName + ' ' + href.slice(0, 40));
    }
  };
  read();
  for (const box of document.querySelectorAll('.rows:has(tr.gap, ul.list)')) {
    for (let at = 0; at < box.scrollHeight; at += 400) { box.scrollTop = at; await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); texts.push(box.textContent, ...[...box.querySelectorAll('[title]')].map(e => e.title)); }
  }
  read();
  if (window.hit) strange.push('a script has run');
  return { text: texts.join('\\n'), strange: [...new Set(strange)] };
}"""


def forms(text):
    """A text as it is, and as a string of PromQL or JSON shows it."""
    return [text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(json.dumps(text, ensure_ascii=False)[1:-1], ensure_ascii=False)[1:-1]]


def missing(survey, texts):
    """Faults of a page: texts that are not there, and what texts have made of it."""
    flat = survey["text"].replace("\r\n", "\n")
    return [text for text in texts if not any(form.replace("\r\n", "\n") in flat for form in forms(text))], survey["strange"]


def check(page, texts, where):
    """Waits until all texts are in the page as texts, and fails if anything else has come of them."""
    for _ in range(12):
        absent, strange = missing(page.evaluate(SURVEY), texts)
        if strange or not absent:
            break
        page.wait_for_timeout(150)
    assert not strange, "%s: %s" % (where, strange)
    assert not absent, "%s: %d texts are not there, the first: %r" % (where, len(absent), absent[0][:200])


def write(client):
    """Texts as metric names, label names, values and help, by remote write; a few series of each, so that lists of
    cardinality have them first."""
    now = int(time.time() * 1000)
    series = [({"__name__": text, text: text, "hostile": RUN, "n": str(k)}, [(now - 1000, float(k)), (now, float(k))]) for text in TEXTS for k in range(3)]
    metadata = [(text, 1, text, text[:30]) for text in TEXTS]
    status, _, answer = client.request("POST", "/api/v1/write", wire.snappy_literal(wire.encode_rw1(series, metadata)), {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"})
    assert status in (200, 204), (status, answer)


def queries(browser):
    """Pages of queries, with the texts that were written over the wire."""
    everything = '{hostile="%s",n="0"}' % RUN
    for fields in ({"tab": "table"}, {"tab": "graph", "range_input": "5m", "series_max": "1000"}):
        page = browser.open(panel(everything, run=False, **fields))
        check(page, TEXTS, "query " + fields["tab"])
        browser.close(page)
    # A few at a time: names of labels as heads of columns, and operators of a plan that ran.
    for k in range(0, len(TEXTS), 9):
        some = TEXTS[k:k + 9]
        expr = " or ".join("{%s=%s,n=\"0\"}" % (quoted(text), quoted(text)) for text in some)
        page = browser.open(panel(expr, run=False, tab="table"))
        check(page, some, "query columns")
        heads = page.locator("thead").text_content()
        assert all(text.replace("\r\n", "\n") in heads.replace("\r\n", "\n") for text in some), (some, heads)
        page.get_by_role("button", name="Plan", exact=True).click()
        page.locator("table.plan").wait_for()
        page.locator("table.plan .fold").evaluate_all("all => all.forEach(e => e.getAttribute('aria-expanded') === 'false' && e.click())")
        operators = {"text": page.locator("table.plan").text_content(), "strange": []}
        # The server cuts long texts of a plan.
        some = [text for text in some if len(text) < PLAN_TEXT_MAX]
        assert not missing(operators, some)[0], ("plan of a query", missing(operators, some))
        check(page, some, "plan of a query")
        browser.close(page)
    page = browser.open("plan")
    selector = " or ".join("{%s=%s}" % (quoted(text), quoted(text)) for text in TEXTS)
    plan = {"op": "or", "text": selector, "timeMs": 1, "children": [{"op": text, "text": text} for text in TEXTS]}
    page.get_by_label("Line of the slow query log").fill(json.dumps({"query": selector, "plan": plan}))
    check(page, TEXTS, "plan")
    browser.close(page)


def explore(browser):
    """Each metric: name in the list, help, unit, label and value."""
    page = browser.open("explore")
    for text in TEXTS:
        page.evaluate("text => { history.replaceState(null, '', 'explore?' + new URLSearchParams({ metric: text, search: text })); dispatchEvent(new PopStateEvent('popstate')); }", text)
        metric = page.get_by_role("region", name="Metric", exact=True)
        metric.locator("details").first.wait_for()
        metric.locator("details").evaluate_all("all => all.forEach(e => { e.open = true; })")
        page.locator("section[aria-label=Metric] p").first.filter(has_text="gauge").or_(page.locator("section[aria-label=Metric] p").first.filter(has_text="counter")).wait_for()
        check(page, [text], "explore")
    browser.close(page)


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def status_pages(browser):
    """Pages of the server's state: texts as names of metrics, labels and tenants, as queries, rules and refused series,
    in answers that the test makes, since protocols refuse most of them or a list has no room for all."""
    # Parts of the memory map that are too small have no room for a name; the list below has all.
    answers = {
        "status/tenants": lambda _: server_state.tenants(TEXTS), "status/rejects": lambda _: server_state.rejects(TEXTS), "status/top_queries": lambda _: server_state.top_queries(TEXTS), "status/active_queries": lambda _: server_state.active_queries(TEXTS),
        "status/metric_usage": lambda _: server_state.metric_usage(TEXTS), "status/tsdb": lambda _: server_state.tsdb(TEXTS), "status/memory": lambda _: server_state.memory(TEXTS), "status/tsdb/blocks": lambda _: blocks_of(TEXTS), "status/bucket": lambda _: {**server_state.bucket(), "url": TEXTS[0]},
        "rules": lambda _: server_state.rules(0, 0, TEXTS), "status/settings": lambda _: [{"name": text, "value": text, "default": text, "origin": text} for text in TEXTS], "status/config": lambda _: {"yaml": "\n".join(TEXTS)},
    }
    for path in ("tenants", "rejects", "queries", "cardinality", "storage", "alerts", "alerts?view=list", "rules", "rules?sort=time", "settings"):
        page = browser.open(path, answers=answers)
        check(page, TEXTS, path)
        if path in ("alerts", "rules"):
            open_all(page, path)
            check(page, TEXTS, path + " with details")
        browser.close(page)
    # What is typed or in a link is a text, too.
    for path in ("explore?", "cardinality?", "settings?", "tenants?", "rejects?", "alerts?", "rules?"):
        page = browser.open(path + urllib.parse.urlencode({"search": TEXTS[1], "match": TEXTS[1], "tenant": TEXTS[0], "metric": TEXTS[2], "usage_search": TEXTS[26]}), answers={**answers, "status/storage": lambda _: server_state.storage()})
        page.wait_for_timeout(100)
        assert not page.evaluate(SURVEY)["strange"], path
        browser.faults = [fault for fault in browser.faults if "status of" not in fault]
        browser.close(page)


def open_all(page, path):
    """Opens the details of all rules that are in view, or of all."""
    if path == "alerts":
        page.get_by_role("button", name="Open all").click()
    else:
        page.locator(".list .rule .fold-line").evaluate_all("all => all.forEach(e => e.click())")
    page.locator(".list .detail").first.wait_for()


def blocks_of(texts):
    first = server_state.blocks()["blocks"][0]
    return {"blocks": [{**first, "ulid": text, "minTime": first["minTime"] - k * 1000, "location": text} for k, text in enumerate(texts)]}


# Ways to get it wrong, as a page without the policy does them; each has to be seen for each text that it harms.
UNSAFE = {
    "markup": "(box, text) => { box.innerHTML = text; }",
    "attribute": "(box, text) => { box.innerHTML = '<i title=\"' + text + '\"></i>'; }",
    "link": "(box, text) => { const a = document.createElement('a'); a.href = text; a.textContent = text; box.append(a); }",
    "stripped": "(box, text) => { box.textContent = text.normalize('NFKC').replace(/[\\p{Cf}\\p{Cc}\\p{M}<>]/gu, ''); }",
    "cut": "(box, text) => { box.textContent = text.slice(0, text.length - 1); }",
}


def is_address(text):
    """Returns true if a browser follows a text as an address that runs a script or leaves this host."""
    return text.lower().replace("\t", "").startswith(("javascript:", "data:", "vbscript:", "//"))


def unsafe(browser):
    """Proof that the check can fail: for each text, each wrong way is seen, or is right for this text."""
    page = browser.browser.new_context().new_page()
    # Texts that load another page do not: an aborted request leaves the page as it is.
    page.route("**/*", lambda route: route.fulfill(body="<!doctype html><title>x</title><body>", content_type="text/html") if route.request.url == browser.url else route.abort("aborted"))
    page.goto(browser.url)
    seen = {name: 0 for name in UNSAFE}
    for text in TEXTS:
        page.evaluate("text => { document.body.replaceChildren(document.createElement('div')); document.body.firstChild.textContent = text; }", text)
        absent, strange = missing(page.evaluate(SURVEY), [text])
        assert not absent and not strange, "the check refuses %r as a text: %s" % (text, strange)
    for text in TEXTS:
        for name, way in UNSAFE.items():
            page.evaluate("([way, text]) => { window.hit = undefined; document.body.replaceChildren(document.createElement('div')); (0, eval)(way)(document.body.firstChild, text); }", [way, text])
            absent, strange = missing(page.evaluate(SURVEY), [text])
            seen[name] += bool(absent or strange)
            # A text without a quote stays in its attribute, and one that is no address is a link to nowhere.
            is_harmed = name in ("markup", "stripped", "cut") or (name == "attribute" and '"' in text) or (name == "link" and is_address(text))
            assert not is_harmed or absent or strange, "the check does not see %s of %r" % (name, text)
    page.context.close()
    print("     %d texts; seen as unsafe: %s" % (len(TEXTS), ", ".join("%s %d" % pair for pair in seen.items())))


def hostile(browser):
    unsafe(browser)
    write(wire.Client(browser.url.rstrip("/")))
    queries(browser)
    explore(browser)
    status_pages(browser)
