"""Recordings: the answers of a series of requests in a file, and their comparison.

A recording is a JSON array with one answer per line, in the order of the requests. Long and binary bodies are kept as
their beginning, length and SHA-256, so that the file stays small and no byte of them is without a check.
"""
import hashlib
import json
import re

from exchange import UNRECORDED_HEADERS
from varying import unread

# Characters of a body that are kept; the rest is in the hash.
KEPT_CHARS = 1600
KEPT_BYTES = 48
# Ids of requests that the client has not chosen.
ID_HEADERS = {"request-id", "x-request-id"}
MADE_ID = re.compile(r"^[0-9a-f]{16}$")
SHOWN_DIFFERENCES = 20
# Characters shown before and after the first different one.
SHOWN_CHARS = 120


def request_name(group, case):
    """Name of a request in differences: it tells requests apart by their bodies, too."""
    name = "%s: %s %s" % (group, case.method, case.target)
    if len(name) > 300:
        name = "%s... (%s)" % (name[:240], digest(name.encode()))
    if case.is_moving:
        return name
    extra = [header for header in case.headers if header[0] not in ("Content-Type", "Content-Encoding")]
    content = repr((extra, case.announced)).encode() if extra or case.announced is not None else b""
    return name + (" [%s]" % digest(case.body + content) if case.body or content else "")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def body_of(body, run, rules):
    """A body as it is recorded."""
    if unread in rules:
        return unread(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None or "\x00" in text:
        return "<binary> %s... %d bytes, sha256 %s" % (body[:KEPT_BYTES].hex(), len(body), digest(body))
    text = run.replace(text)
    for rule in rules:
        text = rule(text)
    if len(text) > KEPT_CHARS:
        return "%s... %d characters, sha256 %s" % (text[:KEPT_CHARS], len(text), digest(text.encode()))
    return text


def entry_of(name, answer, run, rules):
    """An answer as it is recorded."""
    if answer is None:
        return {"request": name, "status": 0, "headers": {}, "body": "<connection closed>"}
    headers = {}
    for header, value in answer.headers:
        if header in UNRECORDED_HEADERS:
            continue
        value = MADE_ID.sub("<id>", value) if header in ID_HEADERS else run.replace(value)
        for rule in rules if header == "x-influxdb-error" else ():
            value = rule(value)
        headers[header] = headers[header] + " | " + value if header in headers else value
    return {"request": name, "status": answer.status, "headers": dict(sorted(headers.items())),
            "body": body_of(answer.body, run, rules)}


def store(path, entries):
    with open(path, "w", encoding="utf-8") as out:
        lines = (json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
        out.write("[\n" + ",\n".join(lines) + "\n]\n")


def load(path):
    with open(path, encoding="utf-8") as source:
        return json.load(source)


def differences(recorded, entries):
    """Texts, one per difference of two recordings."""
    found = []
    for number, (before, after) in enumerate(zip(recorded, entries)):
        where = "%d %s" % (number, before["request"])
        if before["request"] != after["request"]:
            found.append("%s: the request is another one: %s; record again" % (where, after["request"]))
            continue
        if before["status"] != after["status"]:
            found.append("%s: status %s, now %s" % (where, before["status"], after["status"]))
        for header in sorted(set(before["headers"]) | set(after["headers"])):
            old, new = before["headers"].get(header), after["headers"].get(header)
            if old != new:
                found.append("%s: header %s is %r, now %r" % (where, header, old, new))
        if before["body"] != after["body"]:
            found.append("%s: body\n  recorded %s\n  now      %s" % ((where,) + excerpts(before["body"], after["body"])))
    if len(recorded) != len(entries):
        found.append("%d requests are recorded, %d were sent" % (len(recorded), len(entries)))
    return found


def excerpts(before, after):
    """The surroundings of the first difference of two texts."""
    common = zip(before, after)
    at = next((i for i, (old, new) in enumerate(common) if old != new), min(len(before), len(after)))
    start = max(0, at - SHOWN_CHARS)
    lead = "..." if start else ""
    return tuple(repr(lead + text[start:at + SHOWN_CHARS]) for text in (before, after))


def report(found, count):
    """Prints the first differences and the last line of a kit; returns the exit code."""
    for text in found[:SHOWN_DIFFERENCES]:
        print("FAIL " + text)
    if len(found) > SHOWN_DIFFERENCES:
        print("... and %d more" % (len(found) - SHOWN_DIFFERENCES))
    # An answer may differ in several ways.
    failed = min(len(found), count)
    print("%d passed, %d failed" % (count - failed, len(found)))
    return 1 if found or not count else 0
