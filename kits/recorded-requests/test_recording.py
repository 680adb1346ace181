"""Tests of this kit: a changed recording is reported, and only what varies is replaced."""
import contextlib
import copy
import io
import unittest

import recording
from exchange import DAY, Answer, Case, get, post
from varying import Run, between, durations, field, numbers, samples, shape, unordered, unread

NOW = 1800000000
RUN = Run({"127.0.0.1:4711": "<http>", "/tmp/x/plain": "<folder>", "0.1.0": "<version>"}, NOW)


def entry(body="{}", status=200, headers=(), rules=(), name="plain: GET /a"):
    answer = Answer(status, list(headers), body if isinstance(body, bytes) else body.encode())
    return recording.entry_of(name, answer, RUN, rules)


class Differences(unittest.TestCase):
    BEFORE = [entry("one", 200, [("content-type", "text/plain")]), entry("two", 400, [("retry-after", "5")], name="plain: GET /b"),
              entry("x" * 5000, name="plain: GET /long"), entry(b"\x00\xff" * 90, name="plain: GET /binary")]

    def check(self, change, *words):
        after = copy.deepcopy(self.BEFORE)
        change(after)
        found = recording.differences(self.BEFORE, after)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_equal_recordings_have_none(self):
        self.assertEqual(recording.differences(self.BEFORE, copy.deepcopy(self.BEFORE)), [])

    def test_a_changed_status_is_reported(self):
        self.check(lambda after: after[1].update(status=500), "GET /b", "400", "500")

    def test_a_changed_text_is_reported(self):
        self.check(lambda after: after[0].update(body="onE"), "GET /a", "'one'", "'onE'")

    def test_a_changed_header_is_reported(self):
        self.check(lambda after: after[1]["headers"].update({"retry-after": "6"}), "retry-after", "'5'", "'6'")

    def test_a_missing_header_is_reported(self):
        self.check(lambda after: after[0]["headers"].clear(), "content-type", "None")

    def test_an_added_header_is_reported(self):
        self.check(lambda after: after[0]["headers"].update(warning="199"), "warning", "None", "'199'")

    def test_a_missing_answer_is_reported(self):
        self.check(lambda after: after.pop(), "4 requests are recorded, 3 were sent")

    def test_another_request_is_reported(self):
        self.check(lambda after: after[1].update(request="plain: PUT /b"), "another one", "PUT /b")

    def test_a_closed_connection_is_reported(self):
        before, after = entry("a"), recording.entry_of("plain: GET /a", None, RUN, ())
        self.assertIn("status 200, now 0", "".join(recording.differences([before], [after])))

    def test_the_end_of_a_long_body_counts(self):
        self.assertNotEqual(entry("x" * 5000)["body"], entry("x" * 4999 + "y")["body"])
        self.assertLess(len(entry("x" * 5000)["body"]), 1700)

    def test_the_end_of_a_binary_body_counts(self):
        self.assertNotEqual(entry(b"\xff" * 90 + b"a")["body"], entry(b"\xff" * 90 + b"b")["body"])

    def test_a_repeated_header_keeps_its_values(self):
        headers = [("vary", "Origin"), ("vary", "accept-encoding")]
        self.assertEqual(entry("", headers=headers)["headers"]["vary"], "Origin | accept-encoding")

    def test_exit_code_and_number_of_shown_differences(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(recording.report([], 5), 0)
            self.assertEqual(recording.report(["a"] * 30, 50), 1)
            self.assertEqual(recording.report([], 0), 1)
        self.assertEqual(out.getvalue().count("FAIL a"), 20)
        self.assertIn("and 10 more\n20 passed, 30 failed", out.getvalue())


class Names(unittest.TestCase):
    def check(self, one, other):
        names = [recording.request_name("plain", case) for case in (one, other)]
        self.assertNotEqual(*names)

    def test_requests_with_other_bodies_headers_and_parameters_have_other_names(self):
        self.check(post("/write", b"a"), post("/write", b"b"))
        self.check(get("/a", headers={"Accept": "text/csv"}), get("/a", headers={"Accept": "*/*"}))
        self.check(get("/a", {"q": 1}), get("/a", {"q": 2}))
        self.check(Case("POST", "/a", body=b"x", announced=9), Case("POST", "/a", body=b"x", announced=10))
        self.check(get("/a", {"q": "x" * 900 + "1"}), get("/a", {"q": "x" * 900 + "2"}))

    def test_times_of_the_run_are_in_no_name(self):
        names = {recording.request_name("plain", post("/write", body, is_moving=True)) for body in (b"a", b"b")}
        self.assertEqual(len(names), 1)


class Varying(unittest.TestCase):
    def check(self, text, want, *rules):
        text = RUN.replace(text)
        for rule in rules:
            text = rule(text)
        self.assertEqual(text, want)

    def test_what_is_known_of_the_process(self):
        self.check("at 127.0.0.1:4711 in /tmp/x/plain/data, 0.1.0", "at <http> in <folder>/data, <version>")
        self.check("127.0.0.1:47110 10.1.0 0.1.0.1", "127.0.0.1:47110 10.1.0 0.1.0.1")

    def test_numbers_are_not_known_texts(self):
        # An id of a process with three digits was replaced where it was the value of a sample.
        with self.assertRaises(AssertionError):
            Run({"472": "<pid>"}, NOW)

    def test_times_near_the_run(self):
        for text in ("1800000000", "1799999000.25", "1800000000123", "1800000000123456", "1800000000123456789", "2027-01-15T08:00:00Z",
                     "2027-01-15T08:00:00.123456789Z"):
            self.check('[%s,"%s"]' % (text, text), '[<now>,"<now>"]')

    def test_other_times_and_numbers_stay(self):
        for text in ("%d" % DAY, "%d000" % DAY, "%d.5" % DAY, "2023-11-15T00:30:00Z", "18000000001", "x1800000000", "9223372036854775807"):
            self.check(text, text)

    def test_ids(self):
        self.check("block 01HF7Z5V4XGQ0J8K9M2N3P4R5S gone", "block <ulid> gone")
        self.assertEqual(entry("", headers=[("request-id", "21f101e4eeb9c435")])["headers"]["request-id"], "<id>")
        self.assertEqual(entry("", headers=[("x-request-id", "own")])["headers"]["x-request-id"], "own")

    def test_the_bundle_of_the_page(self):
        self.assertEqual(entry('href="ui/7d0c20b85fbfa111/app.js"')["body"], 'href="ui/<bundle>/app.js"')

    def test_rules(self):
        self.check('{"a":1.5,"b2":"x 3"}', '{"a":<number>,"b2":"x <number>"}', numbers)
        self.check("took 1.5ms and 2m3s, 5 series", "took <duration> and <duration>, 5 series", durations)
        self.check("# HELP a b 1\na{b=\"c\"} 5\n", "# HELP a b 1\na{b=\"c\"} <value>\n", samples)
        self.check('{"a":"b","c":1}', '{"a":"<varies>","c":1}', field("a"))
        self.check('src="/ui/abc/x.js" id="b"', 'src="/ui/<varies>" id="b"', between("/ui/", '"'))
        self.check("text", "<some>", unread)

    def test_lists_without_order(self):
        self.check('{"a":[{"b":2,"c":1},{"b":1,"c":2}]}', '{"a": [{"b": 1}, {"b": 2}]}', unordered("c"))
        self.check("no org id", "no org id", unordered())
        self.assertNotEqual(unordered()("[1,2]"), unordered()("[1,3]"))

    def test_shapes(self):
        self.check('{"a":[1,2.5],"b":null}', '{"a": ["number"], "b": "NoneType"}', shape)
        self.check('{"error":"x 1"}', '{"error":"x 1"}', shape)
        self.check('{"a":1800000000}', '{"a": "number"}', shape)
        self.check("no org id", "no org id", shape)
        self.assertNotEqual(shape('{"a":1}'), shape('{"b":1}'))


if __name__ == "__main__":
    unittest.main()
