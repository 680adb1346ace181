"""What varies between two runs of the same program, replaced by words in angle brackets.

Everything else of an answer is kept as it is. Not here: which answers are compared (`recording`).
"""
import json
import re
import time

SECONDS_PER_DAY = 86400
ULID = re.compile(r"\b0[1-3][0-9A-HJKMNP-TV-Z]{24}\b")
BUNDLE = re.compile(r"\bui/[0-9a-f]{16}/")
RFC3339 = re.compile(r"\b(20\d\d-\d\d-\d\d)T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
LONG_NUMBER = re.compile(r"(?<![\w.])\d{10,19}(?:\.\d+)?(?![\w])")
NUMBER = re.compile(r"(?<![\w.\-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w])")
BARE_NOW = re.compile(r'(?<!")<now>(?!")')
SAMPLE_VALUE = re.compile(r"(?m)^([^#\n][^\n]*?) \S+$")
DURATION = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|h|m|s))+(?![\w])")
DURATION_WORD = "<duration>"


class Run:
    """What is known of one server process: replaced wherever it is found."""

    def __init__(self, texts, now_s=None):
        # A number alone (a port, an id of a process) would also be found among values.
        assert not any(text.isdigit() for text in texts), "a text that is replaced must not be a number"
        # Longer texts first: a folder goes before its parent.
        self.texts = sorted(texts.items(), key=lambda pair: -len(pair[0]))
        self.now_s = time.time() if now_s is None else now_s

    def is_near_now(self, seconds):
        return abs(seconds - self.now_s) < 2 * SECONDS_PER_DAY

    def replace(self, text):
        for old, word in self.texts:
            text = re.sub(r"(?<![\w.])%s(?!\w|\.\d)" % re.escape(old), word, text)
        text = ULID.sub("<ulid>", text)
        text = BUNDLE.sub("ui/<bundle>/", text)
        text = RFC3339.sub(self.of_date, text)
        return LONG_NUMBER.sub(self.of_number, text)

    def of_date(self, match):
        try:
            day = time.mktime(time.strptime(match.group(1), "%Y-%m-%d"))
        except ValueError:
            return match.group(0)
        return "<now>" if self.is_near_now(day) else match.group(0)

    def of_number(self, match):
        text = match.group(0)
        digits = len(text.split(".")[0])
        scale = {10: 1, 13: 1e3, 16: 1e6, 19: 1e9}.get(digits)
        return "<now>" if scale and self.is_near_now(float(text) / scale) else text


def numbers(text):
    """Rule: numbers that stand alone are not compared."""
    return NUMBER.sub("<number>", text)


def durations(text):
    """Rule: durations with a unit are not compared."""
    return DURATION.sub(DURATION_WORD, text)


def samples(text):
    """Rule: the values of the exposition format are not compared."""
    return SAMPLE_VALUE.sub(r"\1 <value>", text)


def unread(body):
    """Rule: the body is not compared, only that there is one; also for bytes that are no text."""
    return "<some>" if body else ""


def shape(text):
    """Rule: JSON is compared by its fields and their types; errors and what is no JSON by their text."""
    try:
        value = json.loads(BARE_NOW.sub("0", text))
    except ValueError:
        return text
    if isinstance(value, dict) and "error" in value:
        return text
    return json.dumps(shape_of(value), sort_keys=True)


def unordered(*left_out):
    """Rule: lists of JSON are compared without their order, and some fields not at all."""
    def rule(text):
        try:
            value = json.loads(BARE_NOW.sub("0", text))
        except ValueError:
            return text
        return json.dumps(sorted_lists(value, left_out), sort_keys=True, ensure_ascii=False)
    return rule


def sorted_lists(value, left_out):
    if isinstance(value, dict):
        return {name: sorted_lists(part, left_out) for name, part in value.items() if name not in left_out}
    if isinstance(value, list):
        return sorted((sorted_lists(part, left_out) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def shape_of(value):
    if isinstance(value, dict):
        return {name: shape_of(part) for name, part in value.items()}
    if isinstance(value, list):
        shapes = {json.dumps(shape_of(part), sort_keys=True) for part in value}
        return [json.loads(text) for text in sorted(shapes)]
    return "number" if isinstance(value, float) else type(value).__name__.replace("int", "number")


def field(name, value=r'"[^"]*"|[^,}\]]+'):
    """Rule: a field of JSON is not compared."""
    pattern = re.compile(r'("%s"\s*:\s*)(?:%s)' % (re.escape(name), value))
    return lambda text: pattern.sub(r'\1"<varies>"', text)


def between(start, end):
    """Rule: what lies between two texts is not compared."""
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.S)
    return lambda text: pattern.sub(lambda _: start + "<varies>" + end, text)
