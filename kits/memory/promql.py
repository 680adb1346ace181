"""Hostile PromQL: large ranges, texts, joins, nestings and results over every function."""
import urllib.parse

VECTORS = ["m0", "{__name__=~\"m.*\"}", "sum by (host) (m1)", "label_replace(m0,\"x\",\"%s\",\"host\",\"(.*)\")",
           "m0 * on(zone) group_right m1", "vector(1)", "sort(m2)"]
# Texts much longer than what a form may be test nothing but its limit.
TEXT_BYTES_MAX = 16 << 20
STEPS = ["1ms", "10ms", "1s", "15s"]
SPANS = ["1h", "7d", "400d", "9000d"]
# Arguments by which signatures are found: those that parse are kept.
SHAPES = ["{v}", "{m}", "{n}", "", "{n},{m}", "{v},{n}", "{v},{n},{n}", "{m},{n},{n}", "{m},{n}", "{v},{s},{s},{s},{s}",
          "{v},{s},{s},{s}", "{v},{s}", "{v},{s},{s}", "{n},{v}", "{s},{v}", "{v},{s},{n},{n}", "{n},{n},{v}"]


class Maker:
    language = "promql"

    def __init__(self, rnd, now, functions, parses):
        self.rnd, self.now = rnd, now
        samples = {"v": "m0", "m": "m0[5m]", "n": "0.5", "s": "\"a\""}
        self.calls = [(name, shape) for name in functions for shape in SHAPES
                      if parses("%s(%s)" % (name, shape.format(**samples)))]
        self.index = 0

    def number(self):
        return self.rnd.choice(["0.5", "1e9", "1e300", "-1", "NaN", "Inf", "1000000", "time()", "scalar(m0)"])

    def text(self):
        kind = self.rnd.randrange(4)
        if kind == 0:
            return "a"
        if kind == 1:
            return "$1" * self.rnd.choice([10, 2000, 100000])
        if kind == 2:
            return "x" * self.rnd.choice([100, 100000, 2000000])
        return self.rnd.choice(["(.*)", "(a|b)*", "(.*)(.*)(.*)(.*)", "(" * 200 + ")" * 200, ".{1,1000}", "[a-z]{500}{20}"])

    def vector(self):
        vector = self.rnd.choice(VECTORS)
        return vector.replace("%s", "$1" * self.rnd.choice([1, 1000, 50000])) if "%s" in vector else vector

    def matrix(self):
        if self.rnd.random() < 0.3:
            return "m%d[%s]" % (self.rnd.randrange(3), self.rnd.choice(SPANS))
        return "(%s)[%s:%s]" % (self.vector(), self.rnd.choice(SPANS), self.rnd.choice(STEPS))

    def call(self, depth=0):
        name, shape = self.calls[self.index % len(self.calls)]
        self.index += 1
        arguments = ""
        for part in shape.split("{"):
            key, end = part[:1], part[2:]
            made = {"v": self.vector, "m": self.matrix, "n": self.number}.get(key)
            arguments += (made() if made else "\"%s\"" % self.text() if key == "s" else "") + end
        text = "%s(%s)" % (name, arguments)
        if depth < 2 and self.rnd.random() < 0.3:
            text = "max_over_time((%s)[%s:%s])" % (text, self.rnd.choice(SPANS), self.rnd.choice(STEPS))
        return text

    def wide(self):
        kind = self.rnd.randrange(9)
        count = self.rnd.choice([100, 5000, 100000])
        vector = self.vector()
        return [
            lambda: " or ".join([vector] * min(count, TEXT_BYTES_MAX // len(vector) + 1)),
            lambda: "+".join(["m0"] * count),
            lambda: "(" * count + "m0" + ")" * count,
            lambda: "-" * count + "m0",
            lambda: "sum by (%s) (m0)" % ",".join("l%d" % i for i in range(count)),
            lambda: "{host=~\"%s\"}" % "|".join("h%d.*" % i for i in range(count)),
            lambda: "count_values(\"%s\", m0 * time())" % ("v" * count),
            lambda: "label_join(%s,\"j\",\"%s\"%s)" % (vector, "-" * count, ",\"host\"" * min(count, 5000)),
            lambda: "topk(1e12, %s) + on(host, zone) group_left(%s) m1" % (vector, ",".join("g%d" % i for i in range(count))),
        ][kind]()

    def make(self):
        text = self.call() if self.rnd.random() < 0.8 else self.wide()
        form = {"query": text}
        if self.rnd.random() < 0.6:
            steps = self.rnd.choice([10, 1000, 10900])
            width = self.rnd.choice([1, 15, 3600])
            form.update(start=str(self.now - steps * width), end=str(self.now), step=str(width))
            return text, "POST", "/api/v1/query_range", urllib.parse.urlencode(form).encode()
        form.update(time=str(self.now))
        return text, "POST", "/api/v1/query", urllib.parse.urlencode(form).encode()
