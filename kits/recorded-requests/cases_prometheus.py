"""Requests in Prometheus's protocols: remote write, queries, metadata, remote read, federation."""
import struct
import time

from exchange import DAY, FORM, Case, form, get, post, remote_write, write_headers
from tsdbwire import FH, STALE, f_bytes, f_varint, snappy_literal, tag, varint
from varying import durations, numbers, unread

STEP = 15
SAMPLES = 241
END = DAY + STEP * (SAMPLES - 1)
NOON = DAY + 1800


def ms(seconds):
    return seconds * 1000


def label(name, **others):
    return dict(others, __name__=name)


def every(step, value, count=SAMPLES):
    return [(ms(DAY + i * step), value(i)) for i in range(count)]


def stored_series():
    """Counters with resets, gauges with special values, histograms of all kinds, names in UTF-8."""
    out = []
    for i, (instance, code) in enumerate((a, c) for a in "ab" for c in ("200", "500")):
        exemplars = [({"trace_id": "t%d%d" % (i, n)}, 0.5 * n, ms(DAY + 600 * n)) for n in range(1, 4)]
        out.append((label("http_requests_total", job="api", instance=instance, code=code),
                    every(STEP, lambda n, i=i: float((n % 100) * (i + 1))), exemplars))
    out.append((label("temperature", room="kitchen"), every(60, lambda n: 20 + (n % 7) / 2, 61)))
    out.append((label("temperature", room="attic"), every(60, lambda n: -5.25 + n / 16, 61)))
    out.append((label("odd", kind="nan"), every(300, lambda n: float("nan"), 13)))
    out.append((label("odd", kind="inf"), every(300, lambda n: float("inf") * (-1) ** n, 13)))
    out.append((label("odd", kind="stale"), every(300, lambda n: STALE if n == 6 else 1.5, 13)))
    out.append((label("odd", kind="tiny"), every(300, lambda n: 1e-300 * (n + 1), 13)))
    for le in ("0.1", "0.5", "1", "+Inf"):
        weight = {"0.1": 1, "0.5": 3, "1": 4, "+Inf": 5}[le]
        out.append((label("wait_seconds_bucket", le=le, job="api"), every(STEP, lambda n, w=weight: float(n * w))))
    for i in range(2):
        out.append((label("latency", path="/%d" % i), every(60, lambda n, i=i: FH(
            schema=2, sum=1.5 * n, count=4.0 * n, zc=1.0 * n, zt=0.001, pos={0: 1.0 * n, 3: 2.0 * n * (i + 1)}), 61)))
    out.append((label("custom"), every(60, lambda n: FH(
        schema=-53, sum=2.0 * n, count=3.0 * n, custom=(0.5, 1.0, 5.0), pos={0: 1.0 * n, 2: 2.0 * n}), 61)))
    out.append((label("mixed"), every(60, lambda n: float(n), 20)))
    out.append((label("name.with dots", **{"label/ü": "värde \"q\"\n\\"}), every(60, lambda n: float(n), 10)))
    out.append((label("up", job="api", instance="a"), every(STEP, lambda n: float(n % 50 != 0))))
    out.append((label("up", job="db", instance="c"), every(STEP, lambda n: 1.0)))
    for i in range(120):
        out.append((label("many", i="%03d" % i), every(60, lambda n, i=i: float(i * n), 5)))
    return out


METADATA = {"http_requests_total": (1, "Requests by code.", ""), "temperature": (2, "Air \"inside\".", "celsius"),
            "wait_seconds_bucket": (3, "Time in the queue.", "seconds"), "latency": (3, "Latency.", "seconds")}


def raw_series(pairs, sample=None):
    """A message of remote write 1.0 with labels exactly as given."""
    body = b"".join(f_bytes(1, f_bytes(1, name) + f_bytes(2, value)) for name, value in pairs)
    sample = tag(1, 1) + struct.pack("<d", 1.0) + f_varint(2, ms(DAY)) if sample is None else sample
    return f_bytes(1, body + f_bytes(2, sample))


def raw_write(message, path="/api/v1/write", proto=1, headers=(), params=None):
    return post(path, snappy_literal(message), params, dict(write_headers(proto), **dict(headers)))


def write_cases():
    yield remote_write(stored_series(), 2, meta=METADATA)
    yield remote_write([(label("http_requests_total", job="web"), [(ms(DAY), 1.0), (ms(DAY + 60), 2.0)])])
    yield remote_write([], 1, meta=[("pushed", 1, "Pushed by 1.0.", "bytes"), ("pushed", 2, "Another.", "")])
    yield remote_write([(label("pushed", via="push"), [(ms(DAY), 3.0)])], path="/api/v1/push")
    yield remote_write([(label("pushed", via="prefix"), [(ms(DAY), 3.0)])], path="/prometheus/api/v1/write")
    # Duplicates: equal, and with another value.
    yield remote_write([(label("dup"), [(ms(DAY), 1.0), (ms(DAY + 15), 2.0)])])
    for proto in (1, 2):
        yield remote_write([(label("dup"), [(ms(DAY), 1.0)])], proto)
        yield remote_write([(label("dup"), [(ms(DAY), 9.0)])], proto)
        yield remote_write([(label("dup"), [(ms(DAY + 30), 1.0), (ms(DAY + 30), 2.0)])], proto)
        yield remote_write([(label("dup"), [(ms(DAY - 60 * proto), 1.0)]), (label("dup"), [(ms(DAY), 8.0)])], proto)
        yield remote_write([(label("mixed"), [(ms(DAY + 300), FH(count=1.0, pos={0: 1.0}))])], proto)
        yield remote_write([(label("empty"), [])], proto)
        yield remote_write([(label("future"), [(ms(4102444800), 1.0)])], proto)
        yield remote_write([(label("out_of_bounds"), [((1 << 63) - 1, 1.0), (-(1 << 62), 1.0)])], proto)
        yield remote_write([(label("bad_histogram"), [(ms(DAY), FH(schema=40, count=1.0, pos={0: 1.0}))])], proto)
        yield remote_write([(label("bad_count"), [(ms(DAY), FH(count=-3.0, pos={0: -3.0}))])], proto)
        yield remote_write([(label("bad_exemplar"), [(ms(DAY), 1.0)], [({"trace": "x" * 200}, 1.0, ms(DAY))])], proto)
        yield remote_write([(label("late_exemplar"), [(ms(DAY), 1.0)],
                             [({"t": "1"}, 1.0, ms(DAY + 9)), ({"t": "2"}, 1.0, ms(DAY))])], proto)
    yield from bad_labels()
    yield from bad_messages()


def bad_labels():
    for pairs in ([], [("a", "b")], [("__name__", "x"), ("a", "1"), ("a", "2")], [("__name__", "x"), ("", "1")],
                  [("z", "1"), ("__name__", "unsorted"), ("a", "2")], [("__name__", "e"), ("a", "")],
                  [("__name__", b"x\xff")], [("__name__", "x"), ("a", b"\xc3\x28")], [("__name__", "")],
                  [("__name__", "n"), ("a", "x\x00y")], [("__name__", "x"), ("a" * 1025, "1")],
                  [("__name__", "x"), ("a", "v" * 16385)],
                  [("__name__", "x")] + [("l%03d" % i, "v") for i in range(128)],
                  [("__name__", "x" * 2000)], [("__name__", "1 2")], [("__name__", "ok"), ("a-b", "c")]):
        yield raw_write(raw_series(pairs))
    yield raw_write(f_bytes(4, "") + f_bytes(5, f_bytes(1, varint(7) + varint(9))), proto=2)
    yield raw_write(f_bytes(4, "") + f_bytes(4, "a") + f_bytes(5, f_bytes(1, varint(1))), proto=2)
    yield raw_write(f_bytes(4, "a") + f_bytes(5, f_bytes(1, varint(0) + varint(0))), proto=2)
    symbols = b"".join(f_bytes(4, text) for text in ("", "__name__", "v2", "a"))
    yield raw_write(symbols + f_bytes(5, f_bytes(1, varint(1) + varint(2) + varint(3) + varint(3))), proto=2)
    yield raw_write(symbols + f_bytes(5, f_bytes(1, varint(3) + varint(2)) + f_bytes(2, f_varint(2, ms(DAY)))), proto=2)
    sample = f_bytes(2, f_varint(2, ms(DAY)))
    yield raw_write(symbols + f_bytes(5, f_bytes(1, varint(1) + varint(2)) + sample + f_bytes(5, f_varint(3, 99))), proto=2)


def bad_messages():
    good = raw_series([("__name__", "good"), ("a", "b")])
    packed = snappy_literal(good)
    for body in (b"", snappy_literal(b""), b"\xff" * 40, good, packed[:-5], b"hello",
                 varint(len(good) + 9) + packed[1:], varint((1 << 32) - 1) + b"\x00a", varint(1 << 60) + b"\x00a",
                 varint(10) + b"\x00a" + bytes((2 | 8 << 2, 0xFF, 0x7F)), varint(65 << 20) + b"\x00a",
                 snappy_literal(good[:-3]), snappy_literal(b"\x0a\xff\xff\xff\xff\x0f"),
                 snappy_literal(b"\x0a" + b"\x80" * 11 + b"\x01"), snappy_literal(b"\x0b\x0c"),
                 snappy_literal(good + f_bytes(99, b"x"))):
        yield post("/api/v1/write", body, headers=write_headers())
    yield post("/api/v1/write", packed[:-5], headers=write_headers(2))
    yield post("/api/v1/write", packed, headers=write_headers(2))
    for changed in ({"Content_Encoding": "gzip"}, {"Content_Encoding": None}, {"Content_Encoding": "zstd"},
                    {"Content_Encoding": "SNAPPY"}, {"Content_Type": "text/plain"}, {"Content_Type": None},
                    {"Content_Type": "application/json"}, {"Content_Type": "application/x-protobuf;proto=foo.Bar"},
                    {"Content_Type": "application/x-protobuf;proto"}, {"Content_Type": ""},
                    {"Content_Type": "application/x-protobuf; proto=\"prometheus.WriteRequest\""},
                    {"X_Prometheus_Remote_Write_Version": "9.9"}, {"Content_Encoding": ""}):
        yield post("/api/v1/write", packed, headers=write_headers(**changed))
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
        yield Case(method, "/api/v1/write")
    yield Case("POST", "/api/v1/write", body=b"abc", headers=write_headers(), announced=1 << 26)
    yield Case("POST", "/api/v1/write", body=b"abc", headers=write_headers(), announced=9)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    yield Case("POST", "/api/v1/write", body=chunked, headers=write_headers(Transfer_Encoding="chunked"))
    yield Case("POST", "/api/v1/write/", body=packed, headers=write_headers())
    yield Case("POST", "//api/v1/write", body=packed, headers=write_headers())


INSTANT = [
    "http_requests_total", "1", "-1.5e3", '"text"', "1 + 1 == bool 2", "temperature[5m]", "odd", "latency", "custom",
    "sum by (code) (rate(http_requests_total[5m]))", "increase(http_requests_total[10m])", "irate(up[1m])",
    "topk(2, many)", "bottomk(2, many)", "quantile(0.9, many)", "count_values('v', up)", "sort_desc(temperature)",
    "histogram_quantile(0.9, rate(wait_seconds_bucket[5m]))", "histogram_quantile(0.5, latency)",
    "histogram_count(latency)", "histogram_avg(custom)", "rate(latency[10m])", "sum(latency)", "latency * 2",
    "label_replace(up, 'x', '$1', 'job', '(.*)')", "label_join(up, 'x', '-', 'job', 'instance')",
    "absent(nothing)", "absent_over_time(nothing{a='b'}[5m])", "nothing", "vector(1)", "scalar(vector(2))",
    "temperature @ %d" % DAY, "temperature offset 10m", "temperature @ end()", "max_over_time(temperature[30m:5m])",
    "up and on (job) http_requests_total", "up unless on (job) http_requests_total",
    "http_requests_total / ignoring (code) group_left up", '{"name.with dots"}', '{__name__=~"temp.*"}',
    "time()", "timestamp(temperature)", "day_of_week(vector(%d))" % DAY, "changes(up[30m])", "resets(up[30m])",
    "predict_linear(temperature[30m], 600)", "deriv(temperature[30m])", "holt_winters(temperature[10m], 0.5, 0.5)",
    "double_exponential_smoothing(temperature[10m], 0.5, 0.5)", "stddev_over_time(temperature[1h])",
    "limitk(2, many)", "info(up)", "sum(many) by (i) > 118", "mixed", "avg(temperature) without (room)", "dup",
    "{job='api',__name__='up'}", "sgn(temperature)", "clamp(temperature, 0, 1)", "group(up)", "atan2(1, 1)",
    "1 atan2 1", "up == up", "quantile_over_time(2, up[5m])", "rate(temperature[5m])", "sum(odd)", "avg(odd)",
]
BAD_QUERIES = [
    "", " ", "(", ")", "sum(", "up{", "up{a}", "up{a=b}", 'up{a=~"("}', '{a=~".*"}', "{}", "up[5m", "up[]", "up[5x]",
    "rate(up)", "rate(up[5m], 1)", "nofunc(up)", "sum(1)", "1 + ", "up + 'x'", "'x' + 1", "up offset", "up offset up",
    "up @ up", "topk(up, up)", "up and 1", "1 and 1", "bool 1", "1 > 2", "up > bool", "x{a='1'}{b='2'}",
    "http_requests_total * up", "http_requests_total * on (job) group_left up", "histogram_quantile(1)",
    "label_replace(up, 'x', '$1', 'job', '(')", "label_replace(up, '', '$1', 'job', '(.*)')",
    "label_join(up, '', '-', 'job')", "count_values('', up)", "up[5m] offset", "up[5m:1s:1s]", "max_over_time(up[5m:0s])",
    "rate(up[-5m])", "rate(up[0s])", "up{__name__='x'}", 'up{a="\xff"', "1 2", "sum by up (up)", "up or 1", "-'x'",
    "quantile('a', up)", "limitk(-1, up)", "time(1)", "up{a='b',,}", "foo:bar:", "9999999999999y", "0x", "1e999",
    "rate(up[999999999y])", "up @ 1e99", "(" * 60 + "1", "label_replace(temperature, 'room', 'x', '', '')",
    "sum_over_time(http_requests_total[5m]) + on () up", "group_left(a) up", "up ==", "by (a) up", "$x", "`", "up \x00",
]


def query_cases():
    for query in INSTANT:
        yield get("/api/v1/query", {"query": query, "time": NOON})
    for query in BAD_QUERIES:
        yield form("/api/v1/query", {"query": query, "time": NOON})
    for query in INSTANT[::4]:
        yield form("/api/v1/query_range", {"query": query, "start": DAY + 300, "end": NOON, "step": 300})
    for query in BAD_QUERIES[::6]:
        yield get("/api/v1/query_range", {"query": query, "start": DAY, "end": NOON, "step": "5m"})
    for params in ({}, {"time": "x"}, {"time": "NaN"}, {"time": "1e300"}, {"time": "2023-11-15T00:30:00Z"},
                   {"time": "2023-11-15T00:30:00.5+01:00"}, {"time": NOON, "timeout": "x"}, {"time": NOON, "timeout": "0"},
                   {"time": NOON, "timeout": "-1s"}, {"time": NOON, "limit": "2"}, {"time": NOON, "limit": "-1"},
                   {"time": NOON, "limit": "x"}, {"time": NOON, "lookback_delta": "1s"}, {"time": ""},
                   {"time": NOON, "lookback_delta": "x"}, {"time": NOON, "lookback_delta": "0"},
                   {"time": NOON, "partial_response": "true"}, {"time": [NOON, DAY]}, {"time": NOON, "unknown": "1"}):
        yield get("/api/v1/query", dict(params, query="http_requests_total"))
    yield get("/api/v1/query", {"time": NOON})
    for stats in ("true", "all", "x"):
        params = {"query": "sum(rate(http_requests_total[5m]))", "time": NOON, "stats": stats}
        yield get("/api/v1/query", params, rules=[numbers])
    yield get("/api/v1/query", {"query": "sum(up)", "time": NOON, "explain": "1"}, rules=[numbers, durations])
    yield from range_cases()
    yield from slow_cases()
    for query in ("sum( up )by(job)", "up{a='b'} offset 5m", "(", "", "-up^2", "x[5m:1m] @ start()"):
        yield get("/api/v1/format_query", {"query": query})
        yield get("/api/v1/parse_query", {"query": query})
    yield get("/api/v1/format_query")
    yield form("/api/v1/format_query", {"query": "sum( up )"})
    yield get("/api/v1/query", {"query": "up", "time": NOON}, {"X-Prometheus-Use-Start-Timestamps": "x"})
    yield form("/api/v1/query", {"query": "up" + " " * 70000, "time": NOON})
    yield form("/api/v1/query", {"query": "up" + " " * 1100000, "time": NOON})
    yield get("/api/v1/query", {"query": "x" * 70000})
    yield get("/api/v1/query", {"query": "up"}, {"X-Long": "x" * 200000})
    yield Case("GET", "/api/v1/query?query=up x")
    yield Case("GET", "nothing")
    yield form("/api/v1/parse_query", {"query": "topk(3, sum without (a) (rate(x{b!='c'}[5m])) > bool 2)"})
    yield from request_forms()


def range_cases():
    good = {"query": "http_requests_total", "start": DAY, "end": DAY + 600, "step": 60}
    for changed in ({}, {"step": "1m"}, {"step": "0"}, {"step": "-5"}, {"step": "x"}, {"step": ""}, {"step": "0.5"},
                    {"start": DAY + 900}, {"start": "x"}, {"end": "x"}, {"end": DAY + 86400 * 30, "step": 1},
                    {"start": "2023-11-15T00:00:00Z"}, {"limit": 1}, {"limit": "x"}, {"nocache": 1}, {"timeout": "1x"},
                    {"query": "latency"}, {"query": "up[5m]"}, {"query": "'x'"}, {"query": "1"}, {"start": "-1"},
                    {"lookback_delta": "5s"}, {"step": "1e-9"}, {"step": "0.0001"}, {"step": "99999999999y"}, {"end": "1e20"}):
        yield get("/api/v1/query_range", dict(good, **changed))
    for missing in good:
        yield get("/api/v1/query_range", {name: value for name, value in good.items() if name != missing})
    yield from cost_cases()


def cost_cases():
    good = {"query": "http_requests_total", "start": DAY, "end": DAY + 600, "step": 60}
    for path, params in (("/api/v1/query_cost", {"query": "up", "time": NOON}), ("/api/v1/query_range_cost", good)):
        for changed in ({}, {"cost": "true"}, {"cost": "x"}, {"max_series": "x"}, {"max_samples_read": "-1"},
                        {"max_query_duration": "x"}, {"max_query_duration": "0s"},
                        {"max_query_duration": "-1s"}, {"max_query_duration": "99h"}, {"query": "("}, {"timeout": "x"}):
            yield get(path, dict(params, **changed))
        yield form(path, params)
    yield form("/api/v1/query_cost", {})


def slow_cases():
    """More than a millisecond of work on any machine."""
    slow = "count_over_time((sum by (i) (many) * sum by (i) (many))[1000d:10s])"
    for path, params in (("/api/v1/query", {"time": NOON}),
                         ("/api/v1/query_range", {"start": DAY, "end": NOON, "step": 10})):
        yield get(path, dict(params, query=slow, timeout="1ms"), rules=[durations])


def request_forms():
    """Parameters in other forms and encodings."""
    path, query = "/api/v1/query", "query=up&time=%d" % NOON
    yield post(path, query, headers={"Content-Type": FORM + "; charset=utf-8"})
    yield post(path, query, headers={"Content-Type": "text/plain"})
    yield post(path, query)
    yield post(path, b"query=\xff", headers={"Content-Type": FORM})
    yield post(path, "query=%zz", headers={"Content-Type": FORM})
    yield post(path, "query=up;time=1", headers={"Content-Type": FORM})
    yield post(path, "&".join("a%d=1" % i for i in range(20000)), headers={"Content-Type": FORM})
    boundary = "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n"
    multipart = boundary % ("query", "up") + boundary % ("time", NOON) + "--b--\r\n"
    yield post(path, multipart, headers={"Content-Type": "multipart/form-data; boundary=b"})
    yield post(path, multipart[:30], headers={"Content-Type": "multipart/form-data; boundary=b"})
    yield post(path, multipart, headers={"Content-Type": "multipart/form-data"})
    yield Case("GET", path + "?query=%ff")
    yield Case("GET", path + "?query=%zz")
    yield Case("GET", path + "?query=up&query=1&time=%d" % NOON)
    yield Case("GET", path + "?" + query, headers={"Accept-Encoding": "gzip"})
    yield get("/api/v1/query_range", {"query": "many", "start": DAY, "end": DAY + 600, "step": 15},
              headers={"Accept-Encoding": "gzip"})
    yield get("/prometheus/api/v1/query", {"query": "up", "time": NOON})
    yield get("/prometheus/api/v1//query", {"query": "up", "time": NOON})
    yield get("/api/v1/query/", {"query": "up", "time": NOON})
    yield get("/prometheus/metrics")
    yield get("/prometheus")
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        yield Case(method, path + "?" + query)


def series_cases():
    span = {"start": DAY, "end": END}
    for match in (["up"], ["up", "temperature"], ['{job="api"}'], ["nothing"], ["up["], ["{}"], ['{a=~".*"}'], [""],
                  ["http_requests_total{code!='200'}"], ['{"name.with dots"}']):
        yield get("/api/v1/series", dict(span, **{"match[]": match}))
        yield get("/api/v1/labels", dict(span, **{"match[]": match}))
        yield form("/api/v1/label/job/values", dict(span, **{"match[]": match}))
    for path in ("/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values"):
        yield get(path)
        yield form(path, span)
        for changed in ({"limit": 1}, {"limit": "x"}, {"limit": -1}, {"start": "x"}, {"end": "x"}, {"start": END + 1},
                        {"start": DAY + 86400, "end": DAY + 90000}):
            yield get(path, dict(span, **dict({"match[]": "{job=~'.+'}"}, **changed)))
        yield Case("DELETE", path)
    for name in ("__name__", "none", "%ff", "a%2Fb", "label%2F%C3%BC", "U__label_2f__fc_", "", "1a", "le", "code"):
        yield get("/api/v1/label/%s/values" % name, span)
    for params in ({}, {"metric": "temperature"}, {"metric": "none"}, {"limit": 1}, {"limit": "x"}, {"limit": -1},
                   {"limit_per_metric": 1}, {"limit_per_metric": "x"}, {"limit": 0}):
        yield get("/api/v1/metadata", params)
    good = dict(span, query="http_requests_total")
    for changed in ({}, {"query": "http_requests_total{code='200'} + up"}, {"query": "("}, {"query": ""},
                    {"start": "x"}, {"end": "x"}, {"start": END, "end": DAY}, {"query": "nothing"}, {"query": "1"}):
        yield get("/api/v1/query_exemplars", dict(good, **changed))
    yield form("/api/v1/query_exemplars", good)
    yield get("/api/v1/query_exemplars")


def search_cases():
    span = {"start": DAY, "end": END}
    for what, params in (("metric_names", {}), ("label_names", {}), ("label_values", {"label": "job"})):
        path = "/api/v1/search/" + what
        for changed in ({}, {"search[]": "te"}, {"search[]": ["temp", "req"]}, {"search[]": "x" * 50}, {"limit": 2},
                        {"limit": "x"}, {"limit": -1}, {"batch_size": 1, "limit": 3}, {"batch_size": "x"},
                        {"sort_by": "alpha"}, {"sort_by": "score", "search[]": "a"}, {"sort_by": "x"},
                        {"sort_dir": "dsc", "sort_by": "alpha"}, {"sort_dir": "x"}, {"case_sensitive": "x"},
                        {"case_sensitive": "false", "search[]": "TEMP"}, {"fuzz_alg": "jarowinkler", "search[]": "tmp"},
                        {"fuzz_alg": "subsequence", "search[]": "tmp"}, {"fuzz_alg": "x"}, {"fuzz_threshold": "101"},
                        {"fuzz_threshold": "x"}, {"include_score": "true", "search[]": "a"}, {"include_metadata": "true"},
                        {"match[]": "up"}, {"match[]": "("}, {"start": "x"},
                        {"sort_by": "score"}, {"sort_by": "score", "sort_dir": "asc", "search[]": "a"}, {"sort_dir": "asc"},
                        {"batch_size": 0}, {"search[]": ["s%d" % n for n in range(200)]}, {"search[]": "y" * 9000}):
            yield get(path, dict(span, **dict(params, **changed)))
        yield form(path, dict(span, **params))
    yield get("/api/v1/search/label_values", span)
    yield get("/api/v1/search/nothing", span)


def read_query(matchers, start=DAY, end=END):
    kinds = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
    body = f_varint(1, ms(start)) + f_varint(2, ms(end))
    for name, kind, value in matchers:
        body += f_bytes(3, f_varint(1, kinds.get(kind, kind)) + f_bytes(2, name) + f_bytes(3, value))
    return f_bytes(1, body)


def remote_read_cases(path="/api/v1/read", params=None):
    up = [("__name__", "=", "up")]
    chunks = f_varint(2, 1)
    for message in (read_query(up), read_query(up) + chunks, read_query(up) + read_query([("job", "=~", "a.*")]) + chunks,
                    read_query([("__name__", "=", "latency")]) + chunks, read_query([("__name__", "=", "latency")]),
                    read_query([("__name__", "=", "none")]) + chunks, b"", read_query([]), read_query(up, END, DAY),
                    read_query([("a", "=~", "(")]), read_query([("a", 9, "b")]), b"\x0a\xff", read_query(up)[:-1]):
        yield post(path, snappy_literal(message), params, write_headers())
    yield post(path, b"no snappy", params, write_headers())
    yield post(path, snappy_literal(read_query(up)), params)
    yield Case("GET", path)


def federate_cases():
    now = int(time.time()) // 10 * 10
    series = [(label("fresh", job=job), [(ms(now), value)]) for job, value in (("a", 1.0), ("b", 2.5))]
    series.append((label("fresh_latency"), [(ms(now), FH(schema=0, sum=1.0, count=2.0, pos={0: 2.0}))]))
    series.append((label("fresh.dots"), [(ms(now), 7.0)]))
    yield remote_write(series, is_moving=True)
    for match in (["fresh"], ["{__name__=~'fresh.*'}"], ["fresh{job='a'}", "fresh"], ["nothing"], ["("], ["{}"], []):
        yield get("/federate", {"match[]": match})
    yield form("/federate", {"match[]": "fresh"})
    for accept in ("application/openmetrics-text; version=1.0.0", "text/plain; version=0.0.4", "text/html",
                   "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                   "text/plain; version=1.0.0; escaping=allow-utf-8"):
        # Times of the run in bytes.
        rules = [unread] if "protobuf" in accept else []
        yield get("/federate", {"match[]": "{__name__=~'fresh|fresh.dots'}"}, {"Accept": accept}, rules=rules)
    yield get("/api/v1/query", {"query": "fresh"})
    yield Case("PUT", "/federate")


def cases():
    for group in (write_cases, query_cases, series_cases, search_cases, remote_read_cases, federate_cases):
        yield from group()


def feature_cases():
    """A server with all experimental parts."""
    yield remote_write(stored_series(), 2, meta=METADATA)
    yield remote_write([(label("started"), [(ms(DAY + 60 * n), 5.0 + n, ms(DAY - 60)) for n in range(10)])], 2)
    yield from cost_cases()
    for query in ("temperature", "http_requests_total", "rate(started[5m])", "increase(started[10m])", "{__type__='counter'}",
                  "sum by (__unit__) (temperature)", "up + fill(0) on (job) group_left temperature",
                  "sort_by_label(up, 'job')", "up{label.dots='x'}", "sum(rate(started[5m]))", "temperature[5m:step()]", "rate(up[5m]) * 2"):
        for header in ({}, {"X-Prometheus-Use-Start-Timestamps": "true"}, {"X-Prometheus-Use-Start-Timestamps": "0"}):
            yield get("/api/v1/query", {"query": query, "time": DAY + 300}, header)
    yield get("/api/v1/query", {"query": "sum(up)", "time": NOON, "stats": "all"}, rules=[numbers])
    yield get("/api/v1/features")
    yield get("/federate", {"match[]": "up"})
    yield get("/api/v1/metadata")
