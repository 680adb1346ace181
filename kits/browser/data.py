"""Series of this run that the pages show, at the present, by remote write."""
import time

import tsdbwire as wire
from driver import RUN

STEP_MS, COUNT = 15000, 20
HOSTILE = "<img src=x onerror=alert(1)>"


def send(client, series, metadata=()):
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    status, _, answer = client.request("POST", "/api/v1/write", wire.snappy_literal(wire.encode_rw1(series, metadata)), headers)
    assert status in (200, 204), (status, answer)


def write_run(url):
    """Floats, native histograms (exponential and custom), classic buckets, a hostile label; the time of the newest sample in seconds."""
    now = int(time.time() * 1000) // STEP_MS * STEP_MS
    write(url, [(k, now - (COUNT - 1 - k) * STEP_MS) for k in range(COUNT)])
    return now // 1000


def refresh_run(url):
    """The newest value of each series at the present: on a slow machine, steps begin later than five minutes after `write_run`."""
    write(url, [(COUNT - 1, int(time.time() * 1000) // STEP_MS * STEP_MS)])


def write(url, samples):
    """All series, with the values of these indices at these times in milliseconds."""

    def native(k):
        pos, neg = {-8: 1.0 + k, 0: 4.0 + 2 * k, 1: 2.0, 9: 1.0}, {2: 1.0}
        return wire.FH(1, 10.5 * k, sum(pos.values()) + sum(neg.values()) + 3, 3.0, 0.001, (), pos, neg)

    def custom(k):
        return wire.FH(-53, 2.0 * k, 7.0 + k, 0, 0, [0.5, 1, 2.5], {0: 2.0, 1: 4.0 + k, 3: 1.0})

    def series(name, value, **labels):
        return {"__name__": name, "run": RUN, **labels}, [(t, value(k)) for k, t in samples]

    many = [series("page_many", lambda k, i=i: float(i), idx=str(i)) for i in range(300)]
    send(wire.Client(url), [
        series("page_one", native, job="a"), series("page_custom", custom, job="a"),
        series("page_floats", float, job="a"), series("page_floats", lambda k: 2.5 * k, job=HOSTILE),
        series("page_bucket", lambda k: 3.0 * k, le="0.1"), series("page_bucket", lambda k: 5.0 * k, le="1"),
        series("page_bucket", lambda k: 6.0 * k, le="+Inf"), *many,
    ])
