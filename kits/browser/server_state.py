"""Answers of status endpoints that are the same in every run: for pictures, hostile texts and large lists.

They have the shapes of docs/reference/api.md. Pages are tested with real answers elsewhere (check.py); what these give
is a state that a test server is not in: thousands of rules, a full disk, tenants near their limits."""
import json
import random
import time

END_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
END = END_MS // 1000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SERVICES = ["checkout", "cart", "search", "payment", "login", "mail", "stock", "prices"]
GIB = 1 << 30


def tenants(names=("shop", "billing", "anonymous", "staging")):
    rng = random.Random(1)
    found = []
    for k, name in enumerate(names):
        series = 9_400 // (k % 7 + 1)
        limits = [{"name": "series", "setting": "max-series", "used": series, "limit": 10_000 if k != 2 else None},
                  {"name": "samples_per_second", "setting": "max-samples-per-second", "used": 600 // (k + 1), "limit": 5_000},
                  {"name": "query_memory_bytes", "setting": "max-query-memory", "used": (3 << 20) // (k + 1), "limit": 256 << 20}]
        found.append({"tenant": name, "samplesAccepted": rng.randrange(10**6, 10**8), "samplesRejected": rng.randrange(4000) if k % 2 == 0 else 0, "queries": rng.randrange(9000),
                      "memoryBytes": series * 512, "limits": limits})
    return {"tenants": found, "total": len(found), "overflow": False}


def rejects(texts=None):
    rng = random.Random(2)
    reasons = ["too_old", "duplicate_timestamp", "series_limit", "invalid_name"]
    advice = {"too_old": "The sample is older than the out-of-order window: raise it, or send sooner.", "duplicate_timestamp": "Two senders write the same series: give each a label of its own.",
              "series_limit": "The tenant has as many series as it may have: drop labels, or raise the limit.", "invalid_name": "The name is empty or not UTF-8: correct the sender."}
    setting = {"too_old": "out-of-order-window", "series_limit": "max-series"}
    counts, examples = [], []
    for k, reason in enumerate(reasons):
        for tenant in ("shop", "billing")[: 2 - k % 2]:
            minutes = [rng.randrange(5, 40 * (k + 1)) if 20 <= m <= 45 or (m * (k + 3)) % 7 == 0 else 0 for m in range(60)]
            counts.append({"tenant": tenant, "reason": reason, "total": sum(minutes), "perMinute": minutes})
    for k in range(14):
        reason = reasons[k % len(reasons)]
        examples.append({"tenant": "shop", "reason": reason, "series": '{__name__="http_requests_total",service="%s",pod="%s-%d"}' % (SERVICES[k % 8], SERVICES[k % 8], k), "timeMs": END_MS - 5 * HOUR_MS - k * MINUTE_MS,
                         "seenMs": END_MS - k * 13_000, "sender": "10.0.0.%d (Prometheus/3.4.1)" % (k + 1), "count": 1 + k * 3, "setting": setting.get(reason), "advice": advice[reason]})
    for k, text in enumerate(texts or []):
        examples.append({"tenant": text, "reason": "too_old", "series": text, "timeMs": END_MS, "seenMs": END_MS - k, "sender": text, "count": 1, "setting": None, "advice": text})
        counts.append({"tenant": text, "reason": "too_old", "total": 1, "perMinute": [0] * 59 + [1]})
    return {"minutes": 60, "endMs": END_MS, "counts": counts, "examples": examples}


def top_queries(texts=None):
    queries = ["sum by (service) (rate(http_requests_total[5m]))", "histogram_quantile(0.99, sum by (le, service) (rate(http_request_duration_seconds_bucket[5m])))", "topk(10, rate(http_requests_total{code=~\"5..\"}[1m]))",
               "SELECT mean(usage) FROM cpu WHERE time > now() - 1h GROUP BY time(1m), host", "max_over_time(queue_depth[1d])", "count by (pod) (up)", "sumSeries(servers.*.cpu.user)"]
    languages = ["promql", "promql", "promql", "influxql", "promql", "promql", "graphite"]
    found = [{"tenant": "shop" if k % 3 else "billing", "language": language, "query": text, "count": 420 // (k + 1), "errors": k % 2, "seconds": 180.5 / (k * k + 1), "maxSeconds": 6.25 / (k + 1),
              "samples": 48_000_000 // (k + 1) ** 2, "lastMs": END_MS - k * 47_000} for k, (text, language) in enumerate(zip(queries, languages))]
    for text in texts or []:
        found.append({"tenant": text, "language": "promql", "query": text, "count": 1, "errors": 0, "seconds": 0.001, "maxSeconds": 0.001, "samples": 1, "lastMs": END_MS})
    return {"minutes": 60, "queries": found, "dropped": 12}


def active_queries(texts=None):
    texts = texts if texts is not None else ["quantile_over_time(0.99, http_request_duration_seconds[7d])", "count({__name__=~\".+\"})"]
    return {"queries": [{"id": k + 1, "tenant": "shop", "query": text, "startMs": END_MS - HOUR_MS, "endMs": END_MS, "stepMs": 15_000, "ageMs": 4_200 + 1_100 * k, "memoryBytes": (38 << 20) // (k + 1), "memoryPeakBytes": (52 << 20) // (k + 1),
                         "series": 1_840 * (k + 1), "samples": 9_300_000 // (k + 1)} for k, text in enumerate(texts)], "waiting": 3, "killed": 1}


METRICS = ["http_request_duration_seconds_bucket", "http_requests_total", "container_memory_working_set_bytes", "kube_pod_labels", "go_gc_duration_seconds", "queue_depth", "process_cpu_seconds_total", "temperature_celsius", "build_info", "node_cpu_seconds_total",
           "debug_events_total", "cache_hits_total"]


def metric_usage(names=None, sort="series"):
    found = [{"name": name, "series": 4_800 // (k + 1), "memoryBytes": 2_400_000 // (k + 1), "diskBytes": 61_000_000 // (k + 1), "queries": 0 if k in (2, 3, 10) else 900 // (k + 1), "lastQueriedMs": None if k in (2, 3, 10) else END_MS - k * 7 * MINUTE_MS}
             for k, name in enumerate(names or METRICS)]
    if sort == "unused":
        found.sort(key=lambda one: (one["queries"] > 0, -one["series"]))
    return {"sinceMs": END_MS - 96 * HOUR_MS, "total": 1_204, "metrics": found, "truncated": False}


def tsdb(names=None):
    def top(list_, first):
        return [{"name": name, "value": max(1, first // (k + 1))} for k, name in enumerate(list_)]
    labels = ["pod", "path", "le", "instance", "service", "code", "zone", "version", "job", "method"]
    pairs = ["zone=eu-1", "job=api", "service=checkout", "code=200", "service=cart", "method=GET", "version=2.4.1", "le=+Inf"]
    return {"headStats": {"numSeries": 11_842, "numLabelPairs": 3_961, "chunkCount": 23_684, "minTime": END_MS - 2 * HOUR_MS, "maxTime": END_MS}, "seriesCountByMetricName": top(names or METRICS, 4_800),
            "seriesCountByLabelValuePair": top(["%s=%s" % (name, name) for name in names] if names else pairs, 9_000), "labelValueCountByLabelName": top(names or labels, 2_900), "memoryInBytesByLabelName": top(names or labels, 960_000)}


def blocks():
    found, at, k = [], END_MS - 2 * HOUR_MS, 0
    for hours, count, level in ((2, 4, 1), (8, 3, 2), (24, 6, 3), (168, 3, 4)):
        for _ in range(count):
            samples = 5_000_000 * hours // 2
            found.append({"ulid": "01KDS%021d" % k, "minTime": at - hours * HOUR_MS, "maxTime": at, "stats": {"numSamples": samples, "numSeries": 11_000 + 210 * k, "numChunks": samples // 120}, "compaction": {"level": level, "sources": []}, "version": 1,
                          "bytes": int(samples * (1.35 - 0.02 * k)), "location": "local" if k < 3 else "both" if k < 8 else "bucket"})
            at, k = at - hours * HOUR_MS, k + 1
    late = found[5]
    found.append({**late, "ulid": "01KDSLATE%017d" % 1, "minTime": late["minTime"] + HOUR_MS, "maxTime": late["minTime"] + 3 * HOUR_MS, "bytes": 340_000})
    return {"blocks": found}


def storage():
    return {"ready": True, "progress": None, "version": "0.0.0", "startTime": "2025-12-28T00:00:00Z", "tenants": 4, "headSeries": 11_842, "headChunks": 23_684, "headMinTime": END_MS - 2 * HOUR_MS, "headMaxTime": END_MS, "blocks": 17, "blockBytes": 5 * GIB,
            "walBytes": 310 << 20, "diskFreeBytes": 41 * GIB, "samplesAppended": 1_204_883_112, "samplesRejected": 4_812, "replayMs": 812, "replayNotes": [], "walPoisoned": False, "diskFull": False, "multitenancy": True}


def own_metrics(query):
    """An answer to the storage page's questions about the server's own metrics."""
    if "deriv" in query:
        return {"resultType": "vector", "result": [{"metric": {}, "value": [END, str(-41 * GIB / (12.5 * 86_400))]}]}
    values = {"chronolith_checkpoint_bytes": 96 << 20, "chronolith_checkpoint_tail_replay_seconds": 0.8, "chronolith_flush_waiting_windows": 2, "chronolith_compaction_step_bytes": 900 << 20, "chronolith_compaction_step_moved_bytes": 640 << 20,
              "chronolith_disk_free_bytes": 41 * GIB}
    return {"resultType": "vector", "result": [{"metric": {"__name__": name}, "value": [END, str(value)]} for name, value in values.items()]}


def memory(names=("shop", "billing", "anonymous", "staging")):
    def parts(**sizes):
        return {name: {"bytes": size, "count": 1} for name, size in sizes.items()}
    return {"process": {"residentBytes": 212 << 20, "anonymousBytes": 160 << 20, "fileBytes": 52 << 20, "peakBytes": 260 << 20}, "accountedBytes": 151 << 20, "unaccountedBytes": 9 << 20,
            "parts": {"head": parts(series=31 << 20, open_chunks=26 << 20, postings=9 << 20, labels=12 << 20, out_of_order=3 << 20), "store": parts(open_blocks=22 << 20, bucket_cache=30 << 20, exemplars=2 << 20, metadata=1 << 20),
                      "server": parts(result_cache=10 << 20, queries=4 << 20, wire_keys=1 << 20)},
            "mapped": {}, "tenants": [{"tenant": name, "series": 9_400 // (k + 1), "bytes": (40 << 20) // (k + 1)} for k, name in enumerate(names)]}


def bucket():
    operation = {"requests": 900, "failed": 2, "receivedBytes": 3 * GIB, "sentBytes": 0, "meanMs": 18.5}
    return {"url": "s3://metrics/chronolith", "readOnly": False, "blocks": 12, "blockBytes": 4 * GIB,
            "cache": {"headerBytes": 6 << 20, "rangeBytes": 24 << 20, "inFlightBytes": 0, "budgetBytes": 64 << 20, "hits": 48_120, "misses": 3_011, "disk": {"bytes": 2 * GIB, "hits": 2_200}},
            "requests": {"inFlight": 1, "firstByteMs": 11.2, "operations": [{"operation": "get", **operation}, {"operation": "put", **operation, "receivedBytes": 0, "sentBytes": 4 * GIB, "meanMs": 210.0}]}, "uploads": {"waitingBlocks": 1, "waitingBytes": 80 << 20}}


def time_text(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + ".%03dZ" % (ms % 1000)


def rules(count=15_000, alerts=3_000, texts=None, end_ms=END_MS, each=5):
    """Groups of 25 rules; every fifth rule of the first ones has `each` alerts."""
    rng = random.Random(3)
    groups, left = [], alerts
    for g in range((count + 24) // 25):
        rules_ = []
        for k in range(min(25, count - 25 * g)):
            service = SERVICES[(g + k) % len(SERVICES)]
            name = "%sLatencyHigh%d" % (service.capitalize(), g)
            query = 'histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket{service="%s"}[5m]))) > %s' % (service, k / 10 + 0.5)
            labels = {"severity": "page" if k % 4 == 0 else "ticket", "team": "team-%d" % (g % 12)}
            base = {"query": query, "health": "ok", "evaluationTime": 0.0004 + k / 1e5, "lastEvaluation": time_text(end_ms - 1000 * (g % 60)), "labels": labels}
            if k % 5 == 4:
                rules_.append({**base, "type": "recording", "samples": 8 * k, "name": "service:%s:p99_%d" % (service, g)})
                continue
            own = []
            if left and k % 5 == 0:
                for a in range(min(left, each)):
                    own.append({"state": "firing" if (g + a) % 3 else "pending", "labels": {"alertname": name, "pod": "%s-%d-%d" % (service, g, a), **labels}, "annotations": {"summary": "p99 of %s is above its target" % service, "runbook_url": "https://runbooks.example/latency/%s" % service}, "value": "%.2f" % rng.uniform(0.5, 3),
                                "activeAt": time_text(end_ms - 1000 * (60 + 97 * ((g + a) % 40)) - 1_000_000 * ((g + a) % 3))})
                left -= len(own)
            state = "firing" if any(one["state"] == "firing" for one in own) else "pending" if own else "inactive"
            rules_.append({**base, "type": "alerting", "name": name, "duration": 300, "state": state, "alerts": own, "annotations": {"summary": "p99 of %s is above its target" % service}})
        rounds = {"missedRounds": 4, "caughtUpRounds": 12, "repairedRounds": 31} if g % 10 == 1 else {}
        groups.append({"name": "group-%d" % g, "file": "rules-%d.yml" % (g % 40), "interval": 60, "evaluationTime": 0.02 + (g % 10) * 5.9, "lastEvaluation": time_text(end_ms - 1000 * (g % 60)), **rounds, "rules": rules_})
    for k, text in enumerate(texts or []):
        alert = {"state": "firing", "labels": {"alertname": text, "pod": text}, "annotations": {"summary": text}, "value": "1"}
        groups.append({"name": text, "file": text, "interval": 60, "rules": [{"type": "alerting", "name": text, "query": text, "health": "ok", "state": "firing", "labels": {}, "alerts": [alert], "lastError": text}]})
    return {"groups": groups}


def series_range(series, points, end=END, step=10):
    """A range result: the text of an answer, made once, since it has megabytes."""
    start = end - (points - 1) * step
    result = []
    for s in range(series):
        values = ",".join('[%d,"%d.%d"]' % (start + k * step, (s * 37 + k * (s % 7 + 1)) % 1000, k % 10) for k in range(points))
        result.append('{"metric":{"__name__":"many","instance":"i-%d","job":"api"},"values":[%s]}' % (s, values))
    return '{"status":"success","data":{"resultType":"matrix","result":[%s]}}' % ",".join(result)


def rows_instant(rows):
    rng = random.Random(4)
    result = ",".join('{"metric":{"__name__":"http_requests_total","instance":"10.0.%d.%d:9100","job":"api","path":"/api/v1/items/%d","code":"%d"},"value":[%d,"%d"]}' % (k // 256, k % 256, rng.randrange(rows), 200 + k % 5, END, rng.randrange(10**6)) for k in range(rows))
    return '{"status":"success","data":{"resultType":"vector","result":[%s]}}' % result


def cluster():
    """A query node: one ready owner, one that lags, one that does not answer, and a partition without an owner."""
    def owner(address, partitions=(), fault=None):
        return {"address": address, "topic": "2W6PfBtaSjybDw7__gABAg", "reportAgeSeconds": 1.5, "fault": fault, "partitions": list(partitions)}

    ready = {"partition": 0, "nextOffset": 125_000, "notReady": None, "logStart": 12_000, "logEnd": 125_010, "lagSeconds": 0.2, "refusedRecords": 0, "resumeOffset": 100_000}
    late = {**ready, "partition": 1, "notReady": "lag of 9000 ms", "lagSeconds": 9, "resumeOffset": None}
    states = [{"partition": number, "accepting": number < 2, "since": "2026-01-01T00:00:00.000Z", "ownerNeededUntil": None if number < 2 else "2026-01-01T12:00:00.000Z"} for number in range(3)]
    query = {"map": {"number": 4, "partitions": states}, "askedPartitions": [0, 1, 2], "unavailablePartitions": [1, 2], "lookupAgeSeconds": 2.5, "lookupFault": None,
             "owners": [owner("10.0.0.8:9595", [late]), owner("10.0.0.7:9595", [ready]), owner("10.0.0.9:9595", fault="connection refused")]}
    return {"roles": ["query"], "unready": None, "gateway": None, "owner": None, "query": query}


def success(value):
    return json.dumps({"status": "success", "data": value})


def answers():
    """Status endpoints by path, each with a function of the request's parameters."""
    return {
        "status/tenants": lambda _: tenants(), "status/rejects": lambda _: rejects(), "status/top_queries": lambda _: top_queries(), "status/active_queries": lambda _: active_queries(),
        "status/metric_usage": lambda params: metric_usage([params["search"][0]] if "search" in params else None, params.get("sort", ["series"])[0]), "status/tsdb": lambda _: tsdb(), "status/tsdb/blocks": lambda _: blocks(), "status/storage": lambda _: storage(),
        "status/memory": lambda _: memory(), "status/bucket": lambda _: bucket(), "rules": lambda _: rules(200, 60),
    }
