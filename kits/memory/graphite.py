"""Hostile targets for Graphite: large counts, windows, names, groups and nestings over every function."""
import urllib.parse

COUNTS = [0, 1, 100, 100000, 10000000, 2000000000]
SPANS = ["1s", "1min", "1h", "30d", "100y"]
PATHS = ["a.1.rps", "a.*.rps", "*.*.rps", "**", "{a,b}.*.rps", "group(*.*.rps,*.*.rps)", "scale(*.*.rps,2)"]


class Maker:
    language = "graphite"

    def __init__(self, rnd, now, functions):
        self.rnd, self.now, self.functions = rnd, now, functions
        self.names = sorted(functions)
        self.index = 0

    def argument(self, parameter, depth):
        kind = parameter.get("type", "any")
        if kind in ("seriesList", "seriesLists", "series"):
            return self.call(depth + 1) if depth < 2 and self.rnd.random() < 0.2 else self.rnd.choice(PATHS)
        if parameter.get("options") and self.rnd.random() < 0.8:
            option = self.rnd.choice(parameter["options"])
            return option if isinstance(option, (int, float)) else "'%s'" % option
        if kind in ("integer", "node", "nodeOrTag", "intOrInterval") and self.rnd.random() < 0.7:
            return str(self.rnd.choice(COUNTS))
        if kind in ("float", "number"):
            return self.rnd.choice(["0.5", "-1", "1e300", "99.9"])
        if kind in ("interval", "intOrInterval", "date"):
            return "'%s'" % self.rnd.choice(SPANS)
        if kind == "boolean":
            return self.rnd.choice(["true", "false"])
        return "'%s'" % self.text()

    def text(self):
        return self.rnd.choice(["x", "average", "sum", "(.*)", "\\1" * 5000, "y" * 200000, "name=~.*", "host=~(h|.*)*", "1s", ".*"])

    def call(self, depth=0):
        name = self.names[self.index % len(self.names)]
        self.index += 1
        parts = []
        for parameter in self.functions[name].get("params", []):
            if not parameter.get("required") and self.rnd.random() < 0.4:
                break
            count = self.rnd.choice([1, 3]) if parameter.get("multiple") else 1
            parts += [str(self.argument(parameter, depth)) for _ in range(count)]
        return "%s(%s)" % (name, ",".join(parts))

    def wide(self):
        target = "a.1.rps"
        kind = self.rnd.randrange(6)
        if kind == 0:
            target = "*.*.rps"
            for _ in range(self.rnd.choice([4, 8, 12])):
                target = "group(%s,%s)" % (target, target)
            return target
        if kind == 1:
            count = self.rnd.choice([10, 1000, 20000])
            return "scale(" * count + target + ",2)" * count
        if kind == 2:
            return "aliasSub(" * 20 + "*.*.rps" + ",'(.*)','\\1\\1')" * self.rnd.choice([20])
        if kind == 3:
            return "sumSeries(%s)" % ",".join(["*.*.rps"] * self.rnd.choice([10, 1000, 10000]))
        if kind == 4:
            return "{%s}.*.rps" % ",".join("a%d" % i for i in range(self.rnd.choice([100, 100000])))
        return "timeStack(*.*.rps,'1s',0,%d)" % self.rnd.choice(COUNTS)

    def make(self):
        target = self.call() if self.rnd.random() < 0.8 else self.wide()
        form = {"target": target, "from": self.rnd.choice(["-1h", "-1d", "-3650d"]),
                "format": self.rnd.choice(["json", "json", "csv", "raw", "png", "svg", "pickle", "msgpack"])}
        if self.rnd.random() < 0.3:
            form["maxDataPoints"] = str(self.rnd.choice([1, 100, 1000000000]))
        return target, "POST", "/render", urllib.parse.urlencode(form).encode()
