"""The page at a server with logins: it asks for one, keeps it for the tab alone, and never shows it."""
import hashlib
import os
import tempfile

import world
from driver import NotRun

TOKEN, PASSWORD_USER = "chl_browser_kit_0001", "reader"
# bcrypt of "p\u00e4ss:word", cost 4: a colon and a letter beyond ASCII are what a header gets wrong.
PASSWORD, BCRYPT = "p\u00e4ss:word", "$2b$04$abcdefghijklmnopqrstuuaAsth9Ne7VZq.6cUlrejgIqjkuzzL4W"
ACCESS = """principals:
- name: page
  token_sha256: %s
  tenants: "*"
  scopes: [read, metrics, admin]
- name: by-password
  user: %s
  password_bcrypt: %s
  tenants: "*"
  scopes: [read, metrics]
"""


def login(browser):
    if not browser.args.server:
        raise NotRun("--server is not given")
    with tempfile.TemporaryDirectory(prefix="chronolith-login-") as folder:
        path = os.path.join(folder, "access.yml")
        with open(path, "w") as file:
            file.write(ACCESS % (hashlib.sha256(TOKEN.encode()).hexdigest(), PASSWORD_USER, BCRYPT))
        with world.running(browser.args.server, folder, ["--access.file=" + path, "--self-scrape=off"]) as url, browser.at(url) as other:
            asks_and_keeps(other)
            takes_a_password(other)


def dialog_of(page):
    """The question for a login, once it is shown."""
    page.get_by_role("heading", name="Log in").wait_for()
    return page.locator("dialog[open] form.login")


def submit(page, text):
    form = dialog_of(page)
    form.locator("input").fill(text)
    with page.expect_navigation():
        form.get_by_role("button", name="Log in").click()


def asks_and_keeps(browser):
    page = browser.open("?g0.expr=vector(7)&g0.tab=table")
    sent = []
    page.on("request", lambda request: sent.append(request))
    assert dialog_of(page).locator("input").get_attribute("type") == "password"
    submit(page, "wrong-token")
    page.get_by_role("alert").get_by_text("The server refuses this login.").wait_for()
    submit(page, TOKEN)
    page.locator(".rows").get_by_text("7", exact=True).wait_for()
    assert page.locator("dialog[open]").count() == 0, "the question stays"
    assert "g0.expr=vector" in page.url, "the query of the address is lost: " + page.url
    page.reload()
    page.locator(".rows").get_by_text("7", exact=True).wait_for()
    shown = page.content() + page.url + "".join(request.url for request in sent)
    assert TOKEN not in shown, "the page shows the token"
    assert page.evaluate("JSON.stringify(localStorage)").find(TOKEN) < 0, "the token outlives the tab"
    assert page.context.cookies() == [], page.context.cookies()
    # A second tab of the same browser starts without a login.
    second = page.context.new_page()
    second.goto(browser.url)
    dialog_of(second)
    second.close()
    browser.close(page)


def takes_a_password(browser):
    page = browser.open("?g0.expr=vector(8)&g0.tab=table")
    submit(page, "%s:%s" % (PASSWORD_USER, PASSWORD))
    page.locator(".rows").get_by_text("8", exact=True).wait_for()
    browser.close(page)
