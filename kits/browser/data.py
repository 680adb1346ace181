"""Series that the pages show, by remote write: those of this run, at the present, and those of the pictures, at a fixed time."""
import math
import time

import server_state
import tsdbwire as wire
from driver import RUN

STEP_MS, COUNT = 15000, 20
HOSTILE = "<img src=x onerror=alert(1)>"
PICTURE_MINUTES = 60


def send(client, series, metadata=()):
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    status, _, answer = client.request("POST", "/api/v1/write", wire.snappy_literal(wire.encode_rw1(series, metadata)), headers)
    assert status in (200, 204), (status, answer)


def write_run(url):
    """Floats, native histograms (exponential and custom), classic buckets, a hostile label; the time of the newest sample in seconds."""
    now = int(time.time() * 1000) // STEP_MS * STEP_MS
    times = [now - (COUNT - 1 - k) * STEP_MS for k in range(COUNT)]

    def native(k):
        pos, neg = {-8: 1.0 + k, 0: 4.0 + 2 * k, 1: 2.0, 9: 1.0}, {2: 1.0}
        return wire.FH(1, 10.5 * k, sum(pos.values()) + sum(neg.values()) + 3, 3.0, 0.001, (), pos, neg)

    def custom(k):
        return wire.FH(-53, 2.0 * k, 7.0 + k, 0, 0, [0.5, 1, 2.5], {0: 2.0, 1: 4.0 + k, 3: 1.0})

    def series(name, value, **labels):
        return {"__name__": name, "run": RUN, **labels}, [(t, value(k)) for k, t in enumerate(times)]

    many = [series("page_many", lambda k, i=i: float(i), idx=str(i)) for i in range(300)]
    send(wire.Client(url), [
        series("page_one", native, job="a"), series("page_custom", custom, job="a"),
        series("page_floats", float, job="a"), series("page_floats", lambda k: 2.5 * k, job=HOSTILE),
        series("page_bucket", lambda k: 3.0 * k, le="0.1"), series("page_bucket", lambda k: 5.0 * k, le="1"),
        series("page_bucket", lambda k: 6.0 * k, le="+Inf"), *many,
    ])
    return now // 1000


def write_pictures(url):
    """An hour of a small shop at a fixed time: requests by service, latencies with an incident, as native and as classic histograms."""
    start = server_state.END_MS - PICTURE_MINUTES * server_state.MINUTE_MS
    times = list(range(start, server_state.END_MS + 1, STEP_MS))

    def incident(t):
        """1 in the middle of the incident, 0 outside it."""
        part = (t - start) / (server_state.END_MS - start)
        return math.exp(-(((part - 0.6) / 0.09) ** 2))

    def series(name, value, **labels):
        return {"__name__": name, **labels}, [(t, value(k, t)) for k, t in enumerate(times)]

    found = []
    for s, service in enumerate(server_state.SERVICES):
        def requests(k, t, s=s):
            return round(k * (30.0 + 9 * s) + 220 * math.sin(k / (9 + s)) + 400 * s, 1)
        found.append(series("shop_requests_total", requests, service=service, zone="eu-%d" % (s % 2 + 1)))
        found.append(series("shop_queue_depth", lambda k, t, s=s: round(4 + 2 * math.sin(k / 5 + s) + 60 * incident(t) * (s == 0), 2), service=service))

    def latency(k, t):
        slow = incident(t)
        counts = {i: round((k + 1) * 40 * math.exp(-((i + 9 - 16 * slow) / 3.2) ** 2)) for i in range(-20, 12)}
        counts = {i: float(c) for i, c in counts.items() if c}
        return wire.FH(2, sum(c * 2 ** (i / 4) for i, c in counts.items()), sum(counts.values()), 0, 0.001, (), counts, {})

    found.append(series("shop_latency_seconds", latency, service="checkout"))
    send(wire.Client(url), found, [("shop_requests_total", 1, "Requests that were answered.", ""), ("shop_queue_depth", 2, "Requests that wait.", ""), ("shop_latency_seconds", 3, "Time of a request.", "seconds")])
