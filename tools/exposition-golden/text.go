package main

import (
	"fmt"
	"math/rand"
	"strings"
)

const mutatedCount, wholeCount = 300, 40

// Lines, each of which is a body of both text formats.
var oddLines = []string{
	"a 1", "a{} 1", "a 1 2", "a 1 -2", "a 1 2.5", "a 1 2.9999", "a 1e3", "a +1", "a .5", "a 5.", "a 0x1p4", "a 1_000", "a 1e999",
	"a NaN", "a nan", "a +NaN", "a Inf", "a -inf", "a +Infinity", "a infinit", "a", "a ", "a 1 ", "a 1\t", "a\t1", "a  1", "a 1  2",
	"a 1 2 3", "a 1 x", "a 1 2x", "a x", "9a 1", "a-b 1", "a+1", "a:b 1", ":a 1", "_ 1", "a.b 1", "é 1", "a{b=\"é\"} 1", "a{é=\"b\"} 1",
	"a{b=\"\xff\"} 1", "a{\"\xff\"=\"b\"} 1", "{\"\xff\"} 1", "{\"a.b\"} 1", "{\"a.b\",} 1", "{\"a.b\",c=\"d\"} 1", "{c=\"d\",\"a.b\"} 1",
	"{\"a\",\"b\"} 1", "a{\"b\"} 1", "a{\"b\"=\"c\"} 1", "a{\"b c\"=\"d\"} 1", "{} 1", "{b=\"c\"} 1", "{\"\"} 1", "a{\"\"=\"b\"} 1",
	"a{b=\"c\",} 1", "a{b=\"c\",,} 1", "a{,} 1", "a{b=\"c\"d=\"e\"} 1", "a{b=\"c\" d=\"e\"} 1", "a{b=\"c\", d=\"e\"} 1", "a{ b=\"c\"} 1",
	"a{b =\"c\"} 1", "a{b= \"c\"} 1", "a{b=\"c\" } 1", "a {b=\"c\"} 1", "a{b=\"c\"}1", "a{b=\"c\"} 1 # {} 2", "a 1 # {} 2", "a 1 # {} 2 3",
	"a 1 2 # {c=\"d\"} 3 4", "a 1 # {c=\"d\",} 3 4.5", "a 1 # {c=\"d\",\"e f\"=\"g\"} 3", "a 1 # {\"c\"} 3", "a 1 # {c=\"d\"} x", "a 1 # {c=\"d\"} 3 x",
	"a 1 # {c=\"d\"}3", "a 1 # {c=\"d\"} 3 4 5", "a 1 # {c=\"d\"} 3 NaN", "a 1 # {c=\"d\"} NaN 1", "a 1 #{c=\"d\"} 3", "a 1 # c", "a 1 #",
	"a{b=c} 1", "a{b} 1", "a{b=\"c} 1", "a{b=\"c\" 1", "a{b=\"c\\\"} 1", "a{b=\"\\\\\"} 1", "a{b=\"\\n\\x\\\"\"} 1", "a{b=\"{}\"} 1", "a{b=\"#\"} 1",
	"a{b=\"\"} 1", "a{b=\"1\",b=\"2\"} 1", "a{__name__=\"b\"} 1", "{__name__=\"b\"} 1", "a{1b=\"c\"} 1", "a{b:c=\"d\"} 1", "a 1\r", "a{b=\"\r\"} 1",
	"a{b=\"\x00\"} 1", "a\x00 1", "a 1 9223372036854775807", "a 1 9223372036854775808", "a 1 1e300", "a 1 1e3", "a 1 NaN", "a 1 +5", "a 1 .5", "a{ } 1", "a}1", "=1",
	"#", "# ", "#a", "# a", "#  a b", "# TYPE a counter", "# TYPE a  counter", "# TYPE a counter ", "#TYPE a counter", "# TYPE", "# TYPE ", "# TYPE a",
	"# TYPE a ", "# TYPE a wrong", "# TYPE a untyped", "# TYPE a unknown", "# TYPE a info", "# TYPE a stateset", "# TYPE a gaugehistogram",
	"# TYPE \"a.b\" gauge", "# TYPE a.b gauge", "# TYPE 1 gauge", "#\tTYPE\ta\tgauge", "# HELP a", "# HELP a ", "# HELP a  b ", "# HELP a b\\n\\\\\\\"c",
	"# HELP \"a.b\" c", "# HELP a-b c", "# HELP 1 c", "# HELP a \xff", "# HELPa b", "# UNIT a_b b", "# UNIT a_b c", "# UNIT a_b ", "# UNIT b b", "# UNIT a_b",
	"# EOF", "# EOF ", "# EOFx", "#EOF", "",
	"# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"1e6\"} 2\na_bucket{le=\"+Inf\"} 3\na_bucket{le=\"x\"} 3\na_bucket{le=\".5\"} 3\na{quantile=\"1\"} 1",
	"# TYPE a summary\na{quantile=\"1\"} 1\na{quantile=\"0.5\"} 2\na{quantile=\"NaN\"} 3\na{le=\"1\"} 3",
	"# TYPE a counter\na_total 1\na_created 5", "# TYPE a counter\na_total 1\na_created 5.1234", "# TYPE a counter\na_total{b=\"c\"} 1\na_created{b=\"d\"} 5",
	"# TYPE a gauge\na 1\na_created 5", "# TYPE a counter\na_total 1\nb_created 5", "# TYPE a counter\na_total{b=\"c\",} 1\na_created{b=\"c\"} 5",
	"# TYPE a histogram\na_bucket{le=\"1\",b=\"c\"} 1\na_count{b=\"c\"} 1\na_sum{b=\"c\"} 1\na_created{b=\"c\"} 5\na_bucket{le=\"1\",b=\"d\"} 1\na_created{b=\"d\"} 6",
	"# TYPE a summary\na{quantile=\"1\"} 1\na_count 1\na_sum 1\na_created 5", "# TYPE a_b counter\n# UNIT a_b b\na_b_total 1 # {t=\"u\"} 1 2\na_b_created 3",
	"# TYPE \"a.b\" counter\n{\"a.b_total\",c=\"d\"} 1\n{\"a.b_created\",c=\"d\"} 5",
}

func textBodies() []body {
	var out []body
	for _, format := range []string{"text", "openmetrics"} {
		end := map[string]string{"text": "\n", "openmetrics": "\n# EOF\n"}[format]
		for _, line := range oddLines {
			out = append(out, body{format, []byte(line + end)}, body{format, []byte(line)})
		}
		random := rand.New(rand.NewSource(int64(len(format))))
		for i := range wholeCount + mutatedCount {
			text := families(random, format)
			if i >= wholeCount {
				text = mutated(random, text)
			}
			out = append(out, body{format, text})
		}
	}
	return out
}

func pick[T any](random *rand.Rand, of []T) T { return of[random.Intn(len(of))] }

func families(random *rand.Rand, format string) []byte {
	var out strings.Builder
	kinds := []string{"counter", "gauge", "histogram", "summary"}
	if format == "openmetrics" {
		kinds = append(kinds, "info", "stateset", "gaugehistogram", "unknown")
	}
	for family := range 1 + random.Intn(2) {
		kind := pick(random, kinds)
		name := fmt.Sprintf("m%d", family)
		if random.Intn(2) == 0 {
			fmt.Fprintf(&out, "# HELP %s %s\n", name, pick(random, []string{"", "text", "a \\\\ b \\n c", "é"}))
		}
		fmt.Fprintf(&out, "# TYPE %s %s\n", name, kind)
		for range 1 + random.Intn(2) {
			lines(random, &out, format, name, kind)
		}
	}
	if format == "openmetrics" {
		out.WriteString("# EOF\n")
	}
	return []byte(out.String())
}

func lines(random *rand.Rand, out *strings.Builder, format, name, kind string) {
	pair := fmt.Sprintf("%s=\"%s\"", pick(random, []string{"a", "b_1", "\"c d\""}), pick(random, []string{"", "x", "é", "\\\\\\\"\\n", "{},="}))
	line := func(suffix, label string) {
		set := pair
		if label != "" {
			set += "," + label
		}
		fmt.Fprintf(out, "%s%s{%s} %s", name, suffix, set, pick(random, []string{"0", "1", "17.5", "1.5e9", "+Inf", "NaN", "-0"}))
		if random.Intn(3) == 0 {
			out.WriteString(pick(random, map[string][]string{
				"text": {" 0", " 1520879607789", "  12"}, "openmetrics": {" 0", " 1520879607.789", " 12.5", " 1e3"}}[format]))
		}
		if format == "openmetrics" && random.Intn(3) == 0 {
			out.WriteString(pick(random, []string{" # {} 1", " # {t=\"x\"} 0.5 3", " # {t=\"x\",u=\"é\"} NaN 1.25"}))
		}
		out.WriteString("\n")
	}
	switch kind {
	case "counter":
		line("_total", "")
	case "histogram":
		line("_bucket", "le=\"1\"")
		line("_bucket", "le=\"+Inf\"")
		line("_count", "")
		line("_sum", "")
	case "summary":
		line("", "quantile=\"0.50\"")
		line("_count", "")
	case "info":
		line("_info", "")
	default:
		line("", "")
	}
	if format == "openmetrics" && random.Intn(2) == 0 {
		fmt.Fprintf(out, "%s_created{%s} 1520872607.123\n", name, pair)
	}
}

func mutated(random *rand.Rand, text []byte) []byte {
	alphabet := []byte(" \t{}\",=#\\0123abcNE+-._:\xc3\r")
	for range 1 + random.Intn(2) {
		at := random.Intn(len(text))
		switch random.Intn(3) {
		case 0:
			text = append(text[:at:at], text[at+1:]...)
		case 1:
			text = append(text[:at:at], append([]byte{text[at]}, text[at:]...)...)
		default:
			text = append(text[:at:at], append([]byte{pick(random, alphabet)}, text[at+1:]...)...)
		}
	}
	return text
}
