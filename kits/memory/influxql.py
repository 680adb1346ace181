"""Hostile InfluxQL: large predictions, windows, fields, nestings and names over every function."""
import urllib.parse

ONE = ["count", "distinct", "integral", "mean", "median", "mode", "spread", "stddev", "sum", "first", "last", "max", "min"]
NUMBERED = ["bottom", "percentile", "sample", "top"]
ROWS = ["cumulative_sum", "derivative", "difference", "elapsed", "non_negative_derivative", "non_negative_difference"]
MOVING = ["chande_momentum_oscillator", "double_exponential_moving_average", "exponential_moving_average",
          "kaufmans_adaptive_moving_average", "kaufmans_efficiency_ratio", "moving_average", "relative_strength_index",
          "triple_exponential_derivative", "triple_exponential_moving_average"]
MATH = ["abs", "acos", "asin", "atan", "ceil", "cos", "exp", "floor", "ln", "log2", "log10", "round", "sin", "sqrt", "tan"]
COUNTS = [1, 4, 1000, 1000000, 100000000, 1000000000, 2147483647]


class Maker:
    language = "influxql"

    def __init__(self, rnd, now):
        self.rnd, self.now = rnd, now
        self.calls = ONE + NUMBERED + ROWS + MOVING + MATH + ["holt_winters", "holt_winters_with_fit", "atan2", "pow", "log"]
        self.index = 0

    def count(self):
        return self.rnd.choice(COUNTS)

    def field(self):
        return self.rnd.choice(["v", "i", "s", "b", "*", "/./", "/f.*/", "v,i,s,b"])

    def call(self):
        name = self.calls[self.index % len(self.calls)]
        self.index += 1
        inner = "%s(%s)" % (self.rnd.choice(ONE), self.rnd.choice(["v", "i"]))
        if name in ONE:
            return "%s(%s)" % (name, self.rnd.choice(["v", "i", "s", "*", "/./"]))
        if name in NUMBERED:
            return "%s(v,%d)" % (name, self.count())
        if name in ROWS:
            return "%s(%s)" % (name, self.rnd.choice([inner, "v", "*"]))
        if name in MOVING:
            return "%s(%s,%d)" % (name, self.rnd.choice([inner, "v"]), self.count())
        if name.startswith("holt"):
            return "%s(%s,%d,%d)" % (name, inner, self.count(), self.count())
        return "%s(v%s)" % (name, ",2" if name in ("atan2", "pow", "log") else "")

    def group(self):
        window = self.rnd.choice(["1ns", "1u", "1ms", "1s", "1m", "1h"])
        fill = self.rnd.choice(["", " fill(0)", " fill(previous)", " fill(linear)", " fill(none)"])
        tags = self.rnd.choice(["", ",*", ",host", ",/./"])
        return " GROUP BY time(%s)%s%s" % (window, tags, fill)

    def select(self):
        source = self.rnd.choice(["m", "m", "m", "wide", "/.*/", "m,wide", "(SELECT * FROM m)", "(SELECT mean(v) FROM m GROUP BY time(1ms) fill(0))"])
        span = self.rnd.choice(["1m", "1h", "1d", "3650d"])
        text = "SELECT %s FROM %s WHERE time > now() - %s" % (self.call(), source, span)
        if self.rnd.random() < 0.8:
            text += self.group()
        if self.rnd.random() < 0.3:
            text += " LIMIT %d OFFSET %d SLIMIT %d" % (self.count(), self.count(), self.count())
        return text

    def wide(self):
        kind = self.rnd.randrange(8)
        count = self.rnd.choice([10, 200, 5000, 50000])
        return [
            lambda: "SELECT * FROM " + "(SELECT * FROM " * min(count, 60) + "wide" + ")" * min(count, 60),
            lambda: "SELECT %s FROM m" % ",".join("v AS a%d" % i for i in range(count)),
            lambda: "SELECT %s FROM m GROUP BY time(1s)" % ",".join("mean(v)" for _ in range(count)),
            lambda: "SELECT v FROM m WHERE %s" % " OR ".join("host='h%d'" % i for i in range(count)),
            lambda: "SELECT v FROM m WHERE host =~ /%s/" % "|".join("h%d.*" % i for i in range(count)),
            lambda: "SELECT %sv%s FROM m" % ("(" * count, ")" * count),
            lambda: "SELECT v%s FROM m" % ("+v" * count),
            lambda: ";".join("SELECT * FROM m LIMIT 100" for _ in range(count)),
        ][kind]()

    def make(self):
        text = self.select() if self.rnd.random() < 0.8 else self.wide()
        form = {"db": "d", "q": text}
        if self.rnd.random() < 0.3:
            form["chunked"] = "true"
        return text, "POST", "/query", urllib.parse.urlencode(form).encode()
