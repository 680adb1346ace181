"""A headless Chromium whose pages are watched: requests to other hosts, script errors, violations of the policy."""
import contextlib
import json
import time
import urllib.parse
import urllib.request

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--font-render-hinting=none", "--disable-lcd-text"]
WATCH = "addEventListener('securitypolicyviolation', e => (window.violations ??= []).push(e.violatedDirective + ' ' + e.blockedURI));"
RUN = "r%x" % int(time.time() * 1000)  # a label of this run, so that runs can repeat
TIMEOUT_MS = 30_000


class NotRun(Exception):
    """A step that cannot run here, and why; it counts as skipped."""


class Browser:
    """One browser; each page has a context of its own and is watched."""

    def __init__(self, playwright, args, url=None):
        self.playwright, self.args = playwright, args
        self.url = (url or args.url).rstrip("/") + "/"
        self.browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS, ignore_default_args=["--hide-scrollbars"])
        self.faults = []

    @contextlib.contextmanager
    def at(self, url):
        """Another browser, for another server."""
        other = Browser(self.playwright, self.args, url)
        try:
            yield other
        finally:
            other.browser.close()

    def open(self, path="", scheme="light", width=1280, height=900, bypass_csp=False, answers=None, normalize=None, script="", has_clock=False, now=None):
        """A page at an address. `answers` has values or texts for endpoints below /api/v1/ by path, as functions of the
        parameters; others ask the server, and `normalize` has functions of its answers. `script` runs before the page's own; with a clock of its own the time of the page can be moved; `now` is a time that does not move."""
        context = self.browser.new_context(bypass_csp=bypass_csp, color_scheme=scheme, viewport={"width": width, "height": height}, permissions=["clipboard-read", "clipboard-write"])
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.add_init_script(WATCH + script)
        if has_clock:
            page.clock.install()
        if now is not None:
            page.clock.set_fixed_time(now)
        page.on("request", lambda request: self.watch(request.url))
        page.on("pageerror", lambda error: self.faults.append("script error: %s" % error))
        page.on("console", lambda message: self.faults.append("console: " + message.text) if message.type == "error" and "status of 4" not in message.text else None)
        if answers or normalize:
            page.route("**/api/v1/**", lambda route: fulfil(route, answers or {}, normalize or {}))
        page.goto(self.url + path)
        page.wait_for_selector("main .panel")
        return page

    def watch(self, address):
        if not address.startswith((self.url, "data:", "blob:" + self.url)):
            self.faults.append("request to another host: " + address)

    def close(self, page):
        found = page.evaluate("window.violations ?? []")
        self.faults += ["policy: " + text for text in found]
        page.context.close()
        faults, self.faults = self.faults, []
        assert not faults, faults

    def get(self, path, **params):
        with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(params)) as answer:
            return json.load(answer)["data"]

    def has(self, path):
        """Returns true if the server has an endpoint."""
        try:
            with urllib.request.urlopen(self.url + path):
                return True
        except urllib.error.HTTPError as error:
            return error.code != 404


def fulfil(route, answers, normalize):
    address = urllib.parse.urlparse(route.request.url)
    path, params = address.path.split("/api/v1/")[1], urllib.parse.parse_qs(address.query + "&" + (route.request.post_data or ""))
    value = answers.get(path, lambda _: None)(params)
    if value is None and path in normalize:
        answer = route.fetch()
        body = answer.json()
        route.fulfill(response=answer, json={**body, "data": normalize[path](body["data"])} if answer.ok else body)
    elif value is None:
        route.continue_()
    else:
        body = value if isinstance(value, str) else json.dumps({"status": "success", "data": value})
        route.fulfill(body=body, content_type="application/x-ndjson" if body.startswith('{"results"') else "application/json")


def panel(expr, run=True, **fields):
    """Address of a query page with one panel; the selector gets the label of this run."""
    expr = expr.replace("}", ',run="%s"}' % RUN) if run else expr
    return "?" + urllib.parse.urlencode({"g0." + name: value for name, value in {"expr": expr, **fields}.items()})


def base_of(page):
    """Address of the folder with the modules of the interface."""
    return page.evaluate("document.querySelector('script[type=module]').src").rsplit("/", 1)[0]


def editor_ready(page):
    page.locator(".editor .cm-content").first.wait_for()


def name_of_focus(page):
    return page.evaluate("(() => { const e = document.activeElement; return e.getAttribute('aria-label') ?? e.labels?.[0]?.firstChild.textContent ?? e.textContent })()").strip()


def reach(page, name, most=120):
    """Presses Tab until the element with this name or text has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if name_of_focus(page) == name:
            return
    raise AssertionError("no focus on %r" % name)
