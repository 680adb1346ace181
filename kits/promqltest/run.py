#!/usr/bin/env python3
"""Run Prometheus promqltest scripts (*.test) against any HTTP server.

See README.md beside this file.  Every `load` becomes a remote write request,
every `eval` an instant or range query over HTTP, and the answer is compared
with the expectation by the rules of the original Go harness.
"""
import argparse
import collections
import glob
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from tsdbwire import FH, STALE, STRONG, Client, free_port  # noqa: E402

DUR = re.compile(r"(\d+)(ms|y|w|d|h|m|s)")
UNIT = dict(ms=1, s=1000, m=60000, h=3600000, d=86400000, w=7 * 86400000, y=365 * 86400000)


def duration(s):
    """Prometheus duration -> milliseconds."""
    s = s.strip()
    if s == "0":
        return 0
    pos = total = 0
    for m in DUR.finditer(s):
        if m.start() != pos:
            break
        total += int(m[1]) * UNIT[m[2]]
        pos = m.end()
    if pos != len(s) or not s:
        raise ValueError("duration %r" % s)
    return total


def number(s):
    t = s.replace("_", "")
    sign = -1.0 if t[:1] == "-" else 1.0
    u = t.lstrip("+-")
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", u):
        return sign * int(u, 16)
    if re.fullmatch(r"0[0-7]+", u):
        return sign * int(u, 8)
    low = u.lower()
    if low in ("inf", "infinity"):
        return sign * math.inf
    if low == "nan":
        return math.nan
    if not re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", u):
        raise ValueError("number %r" % s)
    return sign * float(u)


ESC = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unquote(s):
    """Go string literal -> text (bytes that are not UTF-8 become surrogates)."""
    q, body = s[0], s[1:-1]
    if q == "`":
        return body
    out, i = bytearray(), 0
    while i < len(body):
        c = body[i]
        if c != "\\":
            out += c.encode()
            i += 1
            continue
        e = body[i + 1]
        if e in ESC:
            out += ESC[e].encode()
            i += 2
        elif e == "x":
            out.append(int(body[i + 2:i + 4], 16))
            i += 4
        elif e in "uU":
            n = 4 if e == "u" else 8
            out += chr(int(body[i + 2:i + 2 + n], 16)).encode()
            i += 2 + n
        else:
            out.append(int(body[i + 1:i + 4], 8))
            i += 4
    return out.decode("utf-8", "surrogateescape")


def quoted_end(s, i):
    q = s[i]
    j = i + 1
    while s[j] != q:
        j += 2 if s[j] == "\\" and q != "`" else 1
    return j + 1


def parse_metric(s):
    """Leading `name{a="b"}` of s -> (labels, rest)."""
    m = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", s)
    labels, i = {}, 0
    if m:
        labels["__name__"], i = m[0], m.end()
    if i < len(s) and s[i] == "{":
        i += 1
        while True:
            while s[i] in " \t,":
                i += 1
            if s[i] == "}":
                i += 1
                break
            if s[i] in "\"'`":
                j = quoted_end(s, i)
                key, i = unquote(s[i:j]), j
            else:
                k = re.match(r"[^\s=,}]+", s[i:])[0]
                key, i = k, i + len(k)
            while s[i] in " \t":
                i += 1
            if s[i] == "=":
                i += 1
                while s[i] in " \t":
                    i += 1
                j = quoted_end(s, i)
                labels[key], i = unquote(s[i:j]), j
            else:
                labels["__name__"] = key
    return {k: v for k, v in labels.items() if v != ""}, s[i:]


HKEY = re.compile(r"([a-z_]+):(\[[^\]]*\]|\S+)")


def parse_hist(body):
    d = dict(HKEY.findall(body))
    def arr(k):
        return [number(x) for x in d[k].strip("[]").split()] if k in d else []
    def buckets(k, off):
        o = int(d.get(off, 0))
        return {o + i: c for i, c in enumerate(arr(k))}
    h = FH(int(d.get("schema", 0)), number(d.get("sum", "0")), number(d.get("count", "0")),
           number(d.get("z_bucket", "0")), number(d.get("z_bucket_w", "0")), arr("custom_values"),
           buckets("buckets", "offset"), buckets("n_buckets", "n_offset"), d.get("counter_reset_hint"))
    h.hint_set = "counter_reset_hint" in d
    return h


OMIT = object()


def parse_values(s):
    """Value sequence -> list of float | STALE | FH | OMIT."""
    out, i = [], 0
    while True:
        while i < len(s) and s[i] in " \t":
            i += 1
        if i >= len(s):
            return out
        if s.startswith("{{", i):
            j = s.index("}}", i)
            h = parse_hist(s[i + 2:j])
            i = j + 2
            step, sign = None, 1
            if i < len(s) and s[i] in "+-":
                sign = 1 if s[i] == "+" else -1
                j = s.index("}}", i)
                step = parse_hist(s[i + 3:j])
                i = j + 2
            n, m = 0, re.match(r"x(\d+)", s[i:])
            if m:
                n, i = int(m[1]), i + m.end()
            for _ in range(n + 1):
                out.append(h)
                if step is not None:
                    h = h.add(step, sign)
            continue
        m = re.match(r"\S+", s[i:])
        tok, i = m[0], i + m.end()
        m = re.fullmatch(r"_(?:x(\d+))?", tok)
        if m:
            out += [OMIT] * int(m[1] or 1)
            continue
        m = re.fullmatch(r"stale(?:x(\d+))?", tok)
        if m:
            out += [STALE] * (int(m[1] or 0) + 1)
            continue
        m = re.fullmatch(r"([+-]?(?:[0-9.]+(?:[eE][+-]?\d+)?|[iI]nf|NaN|nan))"
                         r"([+-](?:[0-9.]+(?:[eE][+-]?\d+)?|[iI]nf|NaN))?(?:x(\d+))?", tok)
        if not m:
            raise ValueError("value %r" % tok)
        v, step = number(m[1]), number(m[2]) if m[2] else 0.0
        for _ in range(int(m[3] or 0) + 1):
            out.append(v)
            v = v + step if m[2] else v


def parse_st(s):
    """`@st` offsets -> list of ms | None."""
    out = []
    for tok in s.split():
        m = re.fullmatch(r"_(?:x(\d+))?", tok)
        if m:
            out += [None] * int(m[1] or 1)
            continue
        m = re.fullmatch(r"([+-]?)((?:\d+[a-wyz]+)+|0)(?:([+-])((?:\d+[a-wyz]+)+))?(?:x(\d+))?", tok)
        v = duration(m[2]) * (-1 if m[1] == "-" else 1)
        step = duration(m[4]) * (-1 if m[3] == "-" else 1) if m[4] else 0
        for _ in range(int(m[5] or 0) + 1):
            out.append(v)
            v += step
    return out


# ------------------------------------------------------------------ script
Load = collections.namedtuple("Load", "line series")
Clear = collections.namedtuple("Clear", "line")


class Eval:
    def __init__(self, line, expr):
        self.line, self.expr = line, expr
        self.at = self.start = self.end = self.step = None
        self.range = self.ordered = self.fail = False
        self.want_warn = self.want_info = False
        self.expects = []           # (type, msg|None, regex|None)
        self.results, self.scalar, self.string = [], None, None
        self.rvec = None


def nhcb(series):
    """Classic histogram series -> native histograms with custom buckets."""
    groups = {}
    for labels, samples in series:
        name = labels.get("__name__", "")
        for suf in ("_bucket", "_sum", "_count"):
            if name.endswith(suf):
                break
        else:
            continue
        base = {k: v for k, v in labels.items() if k != "le"}
        base["__name__"] = name[:-len(suf)]
        if suf == "_bucket":
            try:
                le = number(labels["le"])
            except ValueError:
                continue
            if le != le:
                continue
        g = groups.setdefault(tuple(sorted(base.items())), {})
        for smp in samples:
            if isinstance(smp[1], FH):
                continue
            t = g.setdefault(smp[0], {"b": {}, "sum": 0.0})
            if suf == "_bucket":
                t["b"].setdefault(le, smp[1])
            else:
                t[suf[1:]] = smp[1]
    out = []
    for base, byts in groups.items():
        smps = []
        for ts in sorted(byts):
            t = byts[ts]
            les = sorted(t["b"])
            count = t.get("count", t["b"][les[-1]] if les else 0.0)
            cum = [(le, t["b"][le]) for le in les]
            if not les or les[-1] != math.inf:
                cum.append((math.inf, count))
            prev, pos = 0.0, {}
            for i, (le, c) in enumerate(cum):
                if c - prev:
                    pos[i] = c - prev
                prev = c
            smps.append((ts, FH(-53, t["sum"], count, custom=[le for le, _ in cum if le != math.inf], pos=pos)))
        out.append((dict(base), smps))
    return out


def parse_script(text):
    lines = [ln.strip() for ln in text.split("\n")]
    lines = ["" if ln.startswith("#") else ln for ln in lines]
    cmds, i = [], 0
    while i < len(lines):
        ln = lines[i]
        if not ln:
            i += 1
            continue
        word = ln.split()[0].lower()
        if word == "clear":
            cmds.append(Clear(i + 1))
            i += 1
            continue
        block, j = [], i + 1
        while j < len(lines) and lines[j]:
            block.append((j + 1, lines[j]))
            j += 1
        if word.startswith("load"):
            m = re.match(r"load(_with_nhcb)?\s+(.+)$", ln)
            gap = duration(m[2])
            series, st = {}, None
            for _, b in block:
                head = b.split()[0]
                if head.endswith("@st"):
                    st = parse_st(b[len(head):])
                    continue
                labels, rest = parse_metric(b)
                smps = []
                for k, v in enumerate(parse_values(rest)):
                    if v is not OMIT:
                        off = st[k] if st else None
                        smps.append((k * gap, v) if off is None else (k * gap, v, k * gap + off))
                series[tuple(sorted(labels.items()))] = (labels, smps)
                st = None
            series = list(series.values())
            cmds.append(Load(i + 1, series + (nhcb(series) if m[1] else [])))
            i = j
            continue
        m = re.match(r"eval(?:_(fail|warn|ordered|info))?\s+instant\s+(?:at\s+(.+?))?\s+(.+)$", ln)
        if m:
            ev = Eval(i + 1, m[3])
            ev.at = duration(m[2])
        else:
            m = re.match(r"eval(?:_(fail|warn|info))?\s+range\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+?)\s+(.+)$", ln)
            if not m:
                raise ValueError("line %d: %s" % (i + 1, ln))
            ev = Eval(i + 1, m[5])
            ev.start, ev.end, ev.step, ev.range = duration(m[2]), duration(m[3]), duration(m[4]), True
        ev.fail, ev.ordered = m[1] == "fail", m[1] == "ordered"
        ev.want_warn, ev.want_info = m[1] == "warn", m[1] == "info"
        for k, (no, b) in enumerate(block):
            if b.startswith("expected_fail_message"):
                ev.expects.append(("fail", b[len("expected_fail_message"):].strip(), None))
                break
            if b.startswith("expected_fail_regexp"):
                ev.expects.append(("fail", None, b[len("expected_fail_regexp"):].strip()))
                break
            if b.startswith("expect range vector"):
                r = re.match(r"expect range vector\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+)$", b)
                ev.rvec = tuple(duration(x) for x in r.groups())
                ev.at = ev.rvec[1]
                continue
            if b.startswith("expect string"):
                ev.string = unquote(b[len("expect string"):].strip())
                continue
            if b.split(" ")[0] == "expect":
                e = re.match(r"expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?$", b)
                kind = e[1]
                if kind == "ordered":
                    ev.ordered = True
                    continue
                if kind == "fail":
                    ev.fail = True
                msg = e[3].strip() if e[2] == "msg" else None
                rx = e[3].strip() if e[2] == "regex" else (None if msg is not None else ".*")
                ev.expects.append((kind, msg, rx))
                continue
            try:
                ev.scalar = number(b)
                break
            except ValueError:
                pass
            labels, rest = parse_metric(b)
            ev.results.append((labels, parse_values(rest)))
        cmds.append(ev)
        i = j
    return cmds


# ------------------------------------------------------------------ compare
EPS, MINN = 1e-6, 2.2250738585072014e-308


def almost(a, b):
    if a != a and b != b:
        return True
    if a == b:
        return True
    s, d = abs(a) + abs(b), abs(a - b)
    if a == 0 or b == 0 or s < MINN:
        return d < EPS * MINN
    return d / min(s, 1.7976931348623157e308) < EPS


def fnum(s):
    return float(s.replace("Inf", "inf")) if isinstance(s, str) else float(s)


def hist_diff(want, got):
    if not almost(want.count, fnum(got.get("count", "0"))):
        return "histogram count want %r got %s" % (want.count, got.get("count"))
    if not almost(want.sum, fnum(got.get("sum", "0"))):
        return "histogram sum want %r got %s" % (want.sum, got.get("sum"))
    wb, gb = want.buckets(), got.get("buckets") or []
    if len(wb) != len(gb):
        return "histogram buckets want %r got %r" % (wb, gb)
    for w, g in zip(wb, gb):
        if w[0] != g[0] or not all(almost(x, fnum(y)) for x, y in zip(w[1:], g[1:])):
            return "histogram bucket want %r got %r" % (w, g)
    return None


def key(labels):
    return tuple(sorted(labels.items()))


class Fail(Exception):
    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def point_diff(want, vt, ht):
    """want: float|FH; vt / ht: value or histogram text of the answer."""
    if isinstance(want, FH):
        if ht is None:
            return "want histogram, got float %s" % vt
        return hist_diff(want, ht)
    if vt is None:
        return "want %r, got histogram" % want
    return None if almost(want, fnum(vt)) else "want %r got %s" % (want, vt)


def compare_vector(ev, res):
    want = {key(lb): (i, v[0] if v else OMIT) for i, (lb, v) in enumerate(ev.results)}
    seen = set()
    for pos, s in enumerate(res):
        k = key(s["metric"])
        if k not in want:
            raise Fail("extra", "unexpected series %s" % (dict(k),))
        i, w = want[k]
        if ev.ordered and i != pos:
            raise Fail("order", "series %s at %d, want %d" % (dict(k), pos, i))
        d = point_diff(w, s["value"][1] if "value" in s else None,
                       s["histogram"][1] if "histogram" in s else None)
        if d:
            raise Fail("value", "%s: %s" % (dict(k), d))
        seen.add(k)
    miss = [k for k in want if k not in seen]
    if miss:
        raise Fail("missing", "missing series %s" % (dict(miss[0]),))


def compare_matrix(ev, res, start, end, step, base):
    want = {}
    for lb, vals in ev.results:
        f, h = [], []
        for i, v in enumerate(vals):
            t = start + i * step
            if v is OMIT:
                continue
            (h if isinstance(v, FH) else f).append((t, v))
        want[key(lb)] = (f, h)
    seen = set()
    for s in res:
        k = key(s["metric"])
        if k not in want:
            raise Fail("extra", "unexpected series %s" % (dict(k),))
        f, h = want[k]
        gf, gh = s.get("values") or [], s.get("histograms") or []
        if len(f) != len(gf) or len(h) != len(gh):
            raise Fail("value", "%s: want %d floats %d histograms, got %d and %d"
                       % (dict(k), len(f), len(h), len(gf), len(gh)))
        for (t, v), g in zip(f, gf):
            if round(g[0] * 1000) != t + base:
                raise Fail("value", "%s: timestamp want %d got %r" % (dict(k), t + base, g[0]))
            d = point_diff(v, g[1], None)
            if d:
                raise Fail("value", "%s @%d: %s" % (dict(k), t, d))
        for (t, v), g in zip(h, gh):
            if round(g[0] * 1000) != t + base:
                raise Fail("value", "%s: timestamp want %d got %r" % (dict(k), t + base, g[0]))
            d = hist_diff(v, g[1])
            if d:
                raise Fail("value", "%s @%d: %s" % (dict(k), t, d))
        seen.add(k)
    miss = [k for k in want if k not in seen]
    if miss:
        raise Fail("missing", "missing series %s" % (dict(miss[0]),))


def match(exp, text):
    _, msg, rx = exp
    if msg is not None:
        return msg == text
    return re.search(rx.replace("[[:", "[["), text) is not None


def check_annotations(ev, ans, loose):
    for kind, field in (("warn", "warnings"), ("info", "infos")):
        got = ans.get(field) or []
        exps = [e for e in ev.expects if e[0] == kind]
        if exps:
            if not got:
                raise Fail("annotation", "expected %s, got none" % kind)
            if not loose:
                for e in exps:
                    if not any(match(e, g) for g in got):
                        raise Fail("annotation", "no %s matches %r, got %r" % (kind, e[1] or e[2], got))
                for g in got:
                    if not any(match(e, g) for e in exps):
                        raise Fail("annotation", "unexpected %s %r" % (kind, g))
        if any(e[0] == "no_" + kind for e in ev.expects) and got:
            raise Fail("annotation", "unexpected %s %r" % (kind, got))
    if ev.want_warn and not ans.get("warnings"):
        raise Fail("annotation", "expected a warning")
    if ev.want_info and not ans.get("infos"):
        raise Fail("annotation", "expected an info")


ABSOLUTE = re.compile(r"@|\b(time|timestamp|minute|hour|day_of_\w+|days_in_month|month|year|ts_of_\w+)\b")
BAD = re.compile(r'^invalid parameter "query": ')
CTX = re.compile(r"(start|end|range|step)\(\)")


class Runner:
    def __init__(self, a):
        self.a, self.proc, self.dir, self.n = a, None, None, 0
        self.base = a.base
        # Writes, and reads of a cluster by another process.
        self.client = self.reader = None
        self.run_id = "%x" % int(time.time())

    # -- isolation
    def stop(self):
        if self.proc:
            self.proc.kill()
            self.proc.wait()
            self.proc = None
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    def fresh(self):
        self.n += 1
        hdr = {}
        if self.a.tenant_header:
            hdr[self.a.tenant_header] = "pt%s-%d" % (self.run_id, self.n)
        if self.a.launch:
            self.stop()
            self.dir = tempfile.mkdtemp(prefix="promqltest.")
            port = free_port(self.a.port + self.n % 40)
            cmd = self.a.launch.format(port=port, dir=self.dir)
            self.proc = subprocess.Popen(shlex.split(cmd), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            url = "http://127.0.0.1:%d" % port
        else:
            url = self.a.target
        self.client = Client(url, hdr)
        self.reader = Client(self.a.read, dict(hdr, **STRONG)) if self.a.read else self.client
        for client in (self.client, self.reader):
            if not client.wait_ready(self.a.ready_path, self.a.ready):
                raise SystemExit("server not ready: http://%s:%d" % (client.host, client.port))
        self.dirty = False

    # -- commands
    def load(self, cmd):
        series = []
        for lb, smps in cmd.series:
            if smps:  # a series without samples cannot be written
                series.append((lb, [(s[0] + self.base, s[1]) + tuple(x + self.base for x in s[2:]) for s in smps]))
        st, _, body = self.client.write(series, self.a.proto, self.a.write_path)
        self.dirty = True
        if st // 100 != 2:
            return "write HTTP %d %s" % (st, body[:200].decode("utf-8", "replace"))
        if self.a.flush:
            self.client.request("GET", self.a.flush)
        if self.a.settle:
            time.sleep(self.a.settle)
        return None

    def q(self, path, **p):
        p.update(x.split("=", 1) for x in self.a.param)
        return self.reader.api(self.a.query_prefix + path, p)

    def sec(self, ms):
        return "%.3f" % ((ms + self.base) / 1000)

    def evaluate(self, ev):
        if ev.range:
            st, ans = self.q("/api/v1/query_range", query=ev.expr, start=self.sec(ev.start),
                             end=self.sec(ev.end), step="%.3f" % (ev.step / 1000))
        else:
            st, ans = self.q("/api/v1/query", query=ev.expr, time=self.sec(ev.at))
        if ans.get("status") != "success":
            if not ev.fail:
                raise Fail("error", "HTTP %d %s" % (st, str(ans.get("error"))[:300]))
            err = BAD.sub("", str(ans.get("error")))
            for e in ev.expects:
                if e[0] == "fail" and not self.a.loose_messages and not match(e, err):
                    raise Fail("message", "error %r does not match %r" % (err, e[1] or e[2]))
            return
        if ev.fail:
            raise Fail("no-fail", "query succeeded, failure expected")
        if not self.a.no_annotations:
            check_annotations(ev, ans, self.a.loose_messages)
        d = ans["data"]
        rt, res = d["resultType"], d["result"]
        if rt == "string":
            if res[1] != ev.string:
                raise Fail("value", "string want %r got %r" % (ev.string, res[1]))
        elif rt == "scalar":
            if ev.scalar is None or not almost(ev.scalar, fnum(res[1])):
                raise Fail("value", "scalar want %r got %r" % (ev.scalar, res[1]))
        elif rt == "vector":
            if ev.scalar is not None:
                raise Fail("type", "want scalar, got vector")
            compare_vector(ev, res or [])
        else:
            if ev.range:
                w = (ev.start, ev.end, ev.step)
            elif ev.rvec:
                w = ev.rvec
            else:
                raise Fail("type", "matrix answer to an instant query")
            compare_matrix(ev, res or [], *w, self.base)
        if ev.range or ev.rvec or ev.string is not None or self.a.no_range_mode or CTX.search(ev.expr):
            return
        # The same query in range mode must agree at its middle step.
        st, ans = self.q("/api/v1/query_range", query=ev.expr, start=self.sec(ev.at - 60000),
                         end=self.sec(ev.at + 60000), step="60")
        if ans.get("status") != "success":
            raise Fail("range-mode", "HTTP %d %s" % (st, str(ans.get("error"))[:300]))
        if ev.ordered:
            return
        mid, vec = ev.at + self.base, []
        for s in ans["data"]["result"] or []:
            for f, g in (("values", "value"), ("histograms", "histogram")):
                for p in s.get(f) or []:
                    if round(p[0] * 1000) == mid:
                        vec.append({"metric": s["metric"], g: p})
        try:
            if ev.scalar is not None:
                if not vec or not almost(ev.scalar, fnum(vec[0]["value"][1])):
                    raise Fail("value", "scalar want %r got %r" % (ev.scalar, vec))
            else:
                compare_vector(ev, vec)
        except Fail as e:
            raise Fail("range-mode", str(e))

    def run_file(self, path):
        name = os.path.basename(path)
        res = {"file": name, "total": 0, "passed": 0, "skipped": 0, "load_errors": 0, "failures": []}
        cmds = parse_script(open(path, encoding="utf-8").read())
        self.fresh()
        for c in cmds:
            if isinstance(c, Clear):
                if self.dirty:
                    self.fresh()
            elif isinstance(c, Load):
                err = self.load(c)
                if err:
                    res["load_errors"] += 1
                    res["failures"].append({"line": c.line, "kind": "load", "expr": "", "why": err})
            elif self.base and ABSOLUTE.search(c.expr):
                res["skipped"] += 1
            else:
                res["total"] += 1
                try:
                    self.evaluate(c)
                    res["passed"] += 1
                except Fail as e:
                    res["failures"].append({"line": c.line, "kind": e.kind, "expr": c.expr, "why": str(e)})
                except (OSError, KeyError, TypeError, ValueError) as e:
                    res["failures"].append({"line": c.line, "kind": "crash", "expr": c.expr, "why": repr(e)[:300]})
        return res


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("target", nargs="?", help="base URL of a running server (needs --tenant-header), or use --launch")
    p.add_argument("--read", metavar="URL", help="base URL of the server to query, if writes go to another process of a cluster")
    p.add_argument("--files", nargs="+", default=[], help=".test files or folders of them")
    p.add_argument("--launch", help="command that starts a server; {port} and {dir} are filled in; restarted for every `clear`")
    p.add_argument("--port", type=int, default=19500, help="first port for --launch")
    p.add_argument("--tenant-header", help="isolate by tenant: a fresh value of this header for every `clear`")
    p.add_argument("--write-path", default="/api/v1/write")
    p.add_argument("--query-prefix", default="")
    p.add_argument("--param", action="append", default=[], metavar="K=V", help="extra query parameter")
    p.add_argument("--proto", type=int, choices=(1, 2), default=1, help="remote write version")
    p.add_argument("--base", type=int, default=0, help="milliseconds added to every timestamp; evals that depend on absolute time are then skipped")
    p.add_argument("--flush", help="path to GET after every load")
    p.add_argument("--settle", type=float, default=0, help="seconds to wait after every load")
    p.add_argument("--ready", type=float, default=30, help="seconds to wait for a server")
    p.add_argument("--ready-path", default="/-/ready")
    p.add_argument("--no-annotations", action="store_true", help="ignore warn/info expectations")
    p.add_argument("--loose-messages", action="store_true", help="accept any wording of errors and annotations")
    p.add_argument("--no-range-mode", action="store_true", help="do not repeat instant queries as range queries")
    p.add_argument("--json", help="write all results here")
    p.add_argument("--show", type=int, default=3, help="failures shown per file")
    p.add_argument("--count", action="store_true", help="only parse and count")
    a = p.parse_args()
    files = []
    if not a.files:
        p.error("--files names the scripts: files or folders")
    for f in a.files:
        files += sorted(glob.glob(os.path.join(f, "*.test"))) if os.path.isdir(f) else [f]
    if a.count:
        for f in files:
            c = parse_script(open(f, encoding="utf-8").read())
            ev = [x for x in c if isinstance(x, Eval)]
            print("%-28s evals %4d instant %4d range %4d loads %3d clears %3d" % (
                os.path.basename(f), len(ev), sum(not e.range for e in ev), sum(e.range for e in ev),
                sum(isinstance(x, Load) for x in c), sum(isinstance(x, Clear) for x in c)))
        return 0
    if not a.launch and not a.target:
        p.error("give a URL or --launch")
    r, out = Runner(a), []
    try:
        for f in files:
            t = time.time()
            res = r.run_file(f)
            out.append(res)
            kinds = collections.Counter(x["kind"] for x in res["failures"])
            if res["skipped"]:
                kinds["skipped"] = res["skipped"]
            print("%-28s %4d/%4d %6.1f%% %5.1fs %s" % (res["file"], res["passed"], res["total"],
                  100.0 * res["passed"] / max(1, res["total"]), time.time() - t,
                  " ".join("%s=%d" % kv for kv in sorted(kinds.items()))), flush=True)
            for x in res["failures"][:a.show]:
                print("    line %d [%s] %s\n        %s" % (x["line"], x["kind"], x["expr"][:120], x["why"][:300]))
    finally:
        r.stop()
    tot, ok = sum(x["total"] for x in out), sum(x["passed"] for x in out)
    print("%d passed, %d failed" % (ok, tot - ok))
    if a.json:
        json.dump(out, open(a.json, "w"), indent=1)
    return 0 if ok == tot else 1


if __name__ == "__main__":
    sys.exit(main())
