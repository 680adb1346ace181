"""Normalizes answers of a real server, so that two runs over the same data show the same page: replaces times of the
process, sizes of memory, durations and ids. Everything that depends on the data stays: series, samples, blocks, reasons."""
import calendar
import time

import world

END_MS = calendar.timegm(time.strptime(world.END, "%Y-%m-%dT%H:%M:%SZ")) * 1000
MINUTE_MS = 60_000
SERIES_BYTES, GIB = 1_500, 1 << 30


def tenants(data):
    for one in data["tenants"]:
        one["memoryBytes"], one["queries"] = one["series"] * SERIES_BYTES, one["samplesAccepted"] // 10_000
    return data


def rejects(data):
    """All samples were refused within one minute; the counts are spread over ten."""
    for one in data["counts"]:
        last = [one["total"] // 10 + (1 if k < one["total"] % 10 else 0) for k in range(10)]
        one["perMinute"] = [0] * 45 + last + [0] * 5
    data["counts"].sort(key=lambda one: (-one["total"], one["tenant"], one["reason"]))
    data["examples"].sort(key=lambda one: (one["reason"], one["tenant"], str(one["series"])))
    for k, one in enumerate(data["examples"]):
        one["seenMs"] = END_MS - k * 13_000
    return {**data, "endMs": END_MS}


def top_queries(asked):
    """Only these queries, once each and in this order; pages ask others."""
    def normalize(data):
        found = {one["query"]: one for one in data["queries"]}
        kept = [found[text] for text in asked if text in found]
        for k, one in enumerate(kept):
            one["seconds"] = one["maxSeconds"] = round(1.6 / (k + 1), 3)
            one["count"], one["lastMs"] = 1, END_MS - k * MINUTE_MS
        return {**data, "queries": kept}
    return normalize


def metric_usage(data):
    for one in data["metrics"]:
        one["memoryBytes"] = one["series"] * SERIES_BYTES
        # Blocks may have been merged or not.
        one["diskBytes"] = one["diskBytes"] and one["series"] * SERIES_BYTES
        if one["queries"]:
            one["queries"], one["lastQueriedMs"] = 1, END_MS - MINUTE_MS
    return {**data, "sinceMs": END_MS - 1_440 * MINUTE_MS}


def tsdb(data):
    data["headStats"]["chunkCount"] = data["headStats"]["numSeries"] * 12
    return data


def blocks(data):
    """ULIDs contain the time of the flush, so that blocks are sorted by time and store instead."""
    data["blocks"].sort(key=lambda one: (-one["maxTime"], one["store"], -one["stats"]["numSamples"]))
    for k, one in enumerate(data["blocks"]):
        one["ulid"] = "01KADEM%019d" % k
        one["bytes"] -= one["bytes"] % 4096
    return data


def storage(data):
    return {**data, "startTime": world.END, "diskFreeBytes": 41 * GIB, "walBytes": 96 << 20, "replayMs": 12, "headChunks": data["headSeries"] * 12, "version": "0.0.0"}


def settings(listed):
    for one in listed:
        if one["name"] in ("http", "data-dir"):
            one["value"] = one["default"]
    return listed


def plan(data):
    """Times follow from samples and series of each operator; bytes are rounded up to a power of two."""
    def walk(node):
        own = round(0.2 + node["samples"] / 20_000 + node["series"] / 40, 3)
        total = own + sum(walk(child) for child in node["children"])
        node["selfMs"], node["timeMs"] = own, round(total, 3)
        node["memoryBytes"] = 1 << node["memoryBytes"].bit_length()
        return total
    if data and data.get("explain"):
        walk(data["explain"])
    return data


def answers(asked):
    """By path below /api/v1/, the function that normalizes the server's answer."""
    return {"status/tenants": tenants, "status/rejects": rejects, "status/top_queries": top_queries(asked), "status/metric_usage": metric_usage, "status/tsdb": tsdb, "status/tsdb/blocks": blocks, "status/storage": storage, "status/settings": settings, "query_range": plan}
