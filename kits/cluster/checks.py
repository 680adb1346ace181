"""Checks that are counted, and a ledger of what a cluster has acknowledged."""
import time

from nodes import STRONG, Client

RESULTS = []
RECOVERY_WITHIN_S = 90


def check(name, is_met, why=""):
    RESULTS.append(bool(is_met))
    print("%s %s%s" % ("ok  " if is_met else "FAIL", name, "" if is_met else "  -- " + str(why)[:800]), flush=True)


def until(ask, is_enough, seconds=RECOVERY_WITHIN_S):
    end = time.time() + seconds
    while True:
        answer = ask()
        if is_enough(answer) or time.time() > end:
            return answer
        time.sleep(0.2)


class Ledger:
    """Writes of one series; values are the numbers of the writes."""

    def __init__(self, cluster, name="ledger"):
        self.cluster, self.name = cluster, name
        self.base_ms = int(time.time() * 1000) - 3_600_000
        self.count = 0
        self.acknowledged, self.unknown = set(), set()

    def write(self):
        """Returns status, headers, body and seconds of a write of the next sample."""
        number, self.count = self.count, self.count + 1
        start = time.time()
        client = Client(self.cluster.gateway.url, timeout=60)
        status, headers, body = client.write([({"__name__": self.name}, [(self.base_ms + number, float(number))])])
        (self.acknowledged if status == 204 else self.unknown).add(number)
        return status, headers, body.decode("utf-8", "replace"), time.time() - start

    def stored(self, headers=STRONG):
        """Numbers of the samples that a query has, or the refusal."""
        return self.stored_and_warnings(headers)[0]

    def stored_and_warnings(self, headers):
        """The same, and the warnings of the answer."""
        client = Client(self.cluster.query.url, headers, timeout=60)
        query = {"query": self.name + "[2h]", "time": self.base_ms / 1000 + 7000, "nocache": "1"}
        status, answer = client.api("/api/v1/query", query)
        if status != 200:
            return "%d %s" % (status, answer), []
        values = [value for series in answer["data"]["result"] for _, value in series["values"]]
        return {int(float(value)) for value in values}, answer.get("warnings", [])

    def check(self, name):
        """Checks that all acknowledged samples are there, and none that was not sent."""
        stored = until(self.stored, lambda stored: isinstance(stored, set) and self.acknowledged <= stored)
        is_right = isinstance(stored, set) and self.acknowledged <= stored <= self.acknowledged | self.unknown
        missing = sorted(self.acknowledged - stored)[:10] if isinstance(stored, set) else stored
        check(name, is_right, "missing %s" % (missing,))
