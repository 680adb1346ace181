"""Writes verdicts of the reference parser of OpenMetrics, in prometheus_client, about bodies that obey and break rules.

python3 golden.py ../../crates/ingest/testdata/openmetrics-rules.jsonl

A line of the file has a body and the error of the parser, or null.
"""
import itertools
import json
import random
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

HISTOGRAM = "# TYPE h histogram\n"
GAUGE_HISTOGRAM = "# TYPE g gaugehistogram\n"
BODIES = [
    "",
    "a 1\n",
    "# TYPE a counter\na_total 1\n",
    "# TYPE a counter\na 1\n",
    "# TYPE a counter\na_total -1\n",
    "# TYPE a counter\na_total NaN\n",
    "# TYPE a counter\na_total 1 # {a=\"b\"} 1\n",
    "# TYPE a counter\na_created 1 # {a=\"b\"} 1\n",
    "# TYPE a counter\na_total 1\na_created 2\n",
    "# TYPE a counter\na_total 1 # {a=\"" + "x" * 127 + "\"} 1\n",
    "# TYPE a counter\na_total 1 # {a=\"" + "x" * 128 + "\"} 1\n",
    "# TYPE a gauge\na 1 # {a=\"b\"} 1\n",
    "# TYPE a gauge\na_total 1\n",
    "# TYPE a gauge\na NaN\n",
    "# TYPE a gauge\na{b=\"1\"} 1\na{b=\"2\"} 1\na{b=\"1\"} 2\n",
    "# TYPE a gauge\na{b=\"1\"} 1 1\na{b=\"1\"} 1 2\n",
    "# TYPE a gauge\na{b=\"1\"} 1 2\na{b=\"1\"} 1 1\n",
    "# TYPE a gauge\na{b=\"1\"} 1 2\na{b=\"1\"} 1\n",
    "# TYPE a gauge\na{b=\"1\"} 1\na{b=\"1\"} 1 2\n",
    "# TYPE a gauge\na 1\na 1\n",
    "# TYPE a gauge\na{b=\"1\",b=\"2\"} 1\n",
    "# TYPE a gauge\n# TYPE a gauge\na 1\n",
    "# HELP a x\n# HELP a x\na 1\n",
    "# UNIT a_b b\n# UNIT a_b b\n",
    "# TYPE a gauge\na 1\n# HELP a x\n",
    "# HELP a x\n# TYPE a gauge\na 1\n",
    "a 1\n# TYPE a gauge\n",
    "a 1\nb 1\na 2\n",
    "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na 2\n",
    "# TYPE a counter\na_total 1\n# TYPE a_total gauge\na_total 2\n",
    "# TYPE a_total gauge\na_total 1\n# TYPE a counter\na_total 2\n",
    "# TYPE a_b gauge\n# UNIT a_b b\na_b 1\n",
    "# TYPE a_b info\n# UNIT a_b b\na_b_info 1\n",
    "# TYPE a_b stateset\n# UNIT a_b b\na_b{a_b=\"x\"} 1\n",
    "# UNIT a_b c\n",
    "# UNIT a \na 1\n",
    "# TYPE a info\na_info{b=\"c\"} 1\n",
    "# TYPE a info\na_info{b=\"c\"} 2\n",
    "# TYPE a info\na 1\n",
    "# TYPE a info\na_info{b=\"c\"} 1\na_info{b=\"d\"} 1\n",
    "# TYPE a stateset\na{a=\"x\"} 1\na{a=\"y\"} 0\n",
    "# TYPE a stateset\na{a=\"x\"} 2\n",
    "# TYPE a stateset\na{b=\"x\"} 1\n",
    "# TYPE a summary\na{quantile=\"0.5\"} 1\na_count 1\na_sum 1\n",
    "# TYPE a summary\na{quantile=\"1.5\"} 1\n",
    "# TYPE a summary\na{quantile=\"-0.5\"} 1\n",
    "# TYPE a summary\na{quantile=\"x\"} 1\n",
    "# TYPE a summary\na 1\n",
    "# TYPE a summary\na{quantile=\"0.5\"} -1\n",
    "# TYPE a summary\na{quantile=\"0.5\"} NaN\n",
    "# TYPE a summary\na_count -1\n",
    "# TYPE a summary\na_count 1.5\n",
    "# TYPE a summary\na_sum -1\n",
    "# TYPE a unknown\na 1\n",
    "# TYPE a untyped\na 1\n",
    HISTOGRAM + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 1\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"1\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"inf\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"NaN\"} 2\n",
    HISTOGRAM + "h_bucket 2\n",
    HISTOGRAM + "h_bucket{le=\"x\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 2\nh_count 3\nh_sum 1\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 2\nh_count 2\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 2\nh_sum 2\n",
    HISTOGRAM + "h_bucket{le=\"-1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 1\n",
    HISTOGRAM + "h_bucket{le=\"-1\"} 1\nh_bucket{le=\"+Inf\"} 2\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 1.5\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} -1\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} NaN\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 1 # {a=\"b\"} 1\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 1\nh_count 1 # {a=\"b\"} 1\nh_sum 1\n",
    HISTOGRAM + "h_sum 1\nh_count 1\n",
    HISTOGRAM + "h_created 1\n",
    HISTOGRAM + "h 1\n",
    HISTOGRAM + "h_bucket{le=\"+Inf\"} 1 1\nh_bucket{le=\"+Inf\"} 2 2\n",
    HISTOGRAM + "h_bucket{a=\"1\",le=\"+Inf\"} 1\nh_bucket{a=\"2\",le=\"+Inf\"} 2\n",
    HISTOGRAM + "h_bucket{a=\"1\",le=\"+Inf\"} 1\nh_bucket{a=\"2\",le=\"+Inf\"} 2\nh_count{a=\"1\"} 1\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"+Inf\"} 2\ng_gcount 2\ng_gsum 1\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"+Inf\"} 2\ng_gcount 2\ng_gsum -1\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"-1\"} 1\ng_bucket{le=\"+Inf\"} 2\ng_gcount 2\ng_gsum -1\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"+Inf\"} 2\ng_gcount 2\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"+Inf\"} 2\ng_gsum 2\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"+Inf\"} 2\ng_count 2\n",
    GAUGE_HISTOGRAM + "g_bucket{le=\"1\"} 2\n",
    "# TYPE a gauge\na 1\n\n",
    "#TYPE a gauge\n",
    "# TYPE a gauge \n",
    "a 1 \n",
    "a  1\n",
    " a 1\n",
    "a\t1\n",
    "a{b=\"c\"} 1 2 # {} 3\n",
    "a{b=\"c\"}1\n",
    "a{b=\"c\" } 1\n",
    "a{b=c} 1\n",
    "a{1=\"c\"} 1\n",
    "a 1e400\n",
    "a x\n",
    "a 1 NaN\n",
    "a 1 x\n",
    "{\"a.b\"} 1\n",
    "# TYPE \"a.b\" gauge\n{\"a.b\",c=\"d\"} 1\n",
]


def verdict(body):
    try:
        for _ in text_string_to_metric_families(body):
            pass
        return None
    except Exception as error:  # The parser raises many kinds, KeyError too.
        return str(error) or type(error).__name__


def shuffled_families():
    """Families whose lines are shuffled, repeated and left out: rules about their order."""
    rng = random.Random(5)
    families = {
        "counter": ["a_total{b=\"1\"} 1", "a_created{b=\"1\"} 2", "a_total{b=\"2\"} 1", "a_total{b=\"2\"} 3 5", "a 1"],
        "histogram": ["a_bucket{le=\"1\"} 1", "a_bucket{le=\"+Inf\"} 2", "a_count 2", "a_sum 3", "a_created 4",
                      "a_bucket{b=\"1\",le=\"+Inf\"} 2"],
        "gaugehistogram": ["a_bucket{le=\"-1\"} 1", "a_bucket{le=\"+Inf\"} 2", "a_gcount 2", "a_gsum -3", "a_gsum 3"],
        "summary": ["a{quantile=\"0\"} 1", "a{quantile=\"1\"} 2", "a_count 1", "a_sum 1", "a_count{b=\"1\"} 1"],
        "info": ["a_info{b=\"1\"} 1", "a_info{b=\"2\"} 1", "a_info 1", "a 1"],
        "stateset": ["a{a=\"1\"} 1", "a{a=\"2\"} 0", "a{a=\"2\",b=\"c\"} 0", "a{b=\"1\"} 1"],
        "gauge": ["a 1", "a 2 1", "a 2 2", "a{b=\"1\"} 1", "a{b=\"2\"} 1", "a_b 1"],
    }
    for kind, _ in itertools.product(families, range(40)):
        lines = rng.choices(families[kind], k=rng.randint(1, 5)) if rng.random() < 0.3 else rng.sample(
            families[kind], rng.randint(1, len(families[kind])))
        head = rng.sample([f"# TYPE a {kind}", "# HELP a x", "# TYPE b gauge"], rng.randint(1, 3))
        yield "\n".join(head + lines) + "\n"


def main():
    ends = ["a 1\n", "a 1\n# EOF", "a 1\n# EOF\n\n", "a 1\n# EOF\na 1\n", "a 1"]
    checked = [body + "# EOF\n" for body in itertools.chain(BODIES, shuffled_families())]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for body in ends + checked:
            out.write(json.dumps({"body": body, "error": verdict(body)}) + "\n")


main()
