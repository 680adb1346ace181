// Expands the templates of crates/rules/testdata/templates.jsonl with Prometheus's own package and writes the file
// again with their outputs. Run it by hand after adding cases, which need no output:
//
//	cd tools/template-golden && go run . ../../crates/rules/testdata/templates.jsonl
//
// A line is a case: "name", "template", "data" (a key of `samples`), and "output" or "error". The error is that of the
// annotation of an alert named Golden, as clients see it, with "error parsing template" or "error executing template".
// Queries are answered from `vectors`; the Rust test has the same data.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

const externalURL = "http://prom.example:9090/some%20path"

// declarations are those of rules/alerting.go.
const declarations = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"

type testCase struct {
	Name     string  `json:"name"`
	Template string  `json:"template"`
	Data     string  `json:"data"`
	Output   *string `json:"output,omitempty"`
	Error    *string `json:"error,omitempty"`
}

func testHistogram() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		Schema: 0, ZeroThreshold: 0.001, ZeroCount: 2, Count: 8, Sum: 18.5,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []float64{2, 3},
		NegativeSpans: []histogram.Span{{Offset: 1, Length: 1}}, NegativeBuckets: []float64{1},
	}
}

// vectors has the answers to queries; all others fail.
var vectors = map[string]promql.Vector{
	"none": {},
	"one":  {sample(1.5)},
	"up": {
		sample(1, labels.MetricName, "up", "instance", "b:9100", "job", "node"),
		sample(0, labels.MetricName, "up", "instance", "a:9100", "job", "node"),
		sample(1000000, labels.MetricName, "up", "instance", "c:9100", "job", "api"),
	},
	"hist": {{Metric: labels.FromStrings(labels.MetricName, "hist"), H: testHistogram()}},
	"odd":  {sample(math.NaN(), "__value__", "x y", "quote", "\"<&'>\"", "umlaut", "größe")},
}

func sample(value float64, pairs ...string) promql.Sample {
	return promql.Sample{Metric: labels.FromStrings(pairs...), F: value}
}

// samples has the alerts by name.
var samples = map[string]promql.Sample{
	"plain":   sample(1000000, labels.MetricName, "up", "instance", "web-1.example.com:9100", "job", "node", "severity", "page"),
	"small":   sample(0.000012345678, "instance", "[::1]:80"),
	"nan":     sample(math.NaN()),
	"inf":     sample(math.Inf(-1), "device", "/dev/sda1", "text", "a<b & \"c\"\n'd' é€😀"),
	"integer": sample(42, "mountpoint", "/"),
	"float":   sample(1234.5678, "le", "+Inf"),
	"hist":    {Metric: labels.FromStrings(labels.MetricName, "hist", "job", "api"), H: testHistogram()},
}

func query(_ context.Context, expression string, _ time.Time) (promql.Vector, error) {
	vector, ok := vectors[expression]
	if !ok {
		return nil, errors.New("no such vector: " + expression)
	}
	return vector, nil
}

func (c *testCase) run(external *url.URL) {
	smpl, ok := samples[c.Data]
	if !ok {
		panic("no such data: " + c.Data)
	}
	externalLabels := map[string]string{"cluster": "eu-1", "replica": "a"}
	data := template.AlertTemplateData(smpl.Metric.Map(), externalLabels, externalURL, smpl)
	expander := template.NewTemplateExpander(context.Background(), declarations+c.Template, "__alert_Golden", data,
		model.Time(1700000000123), query, external, nil)
	output, err := expander.Expand()
	c.Output, c.Error = nil, nil
	if err != nil {
		text := err.Error()
		c.Error = &text
	} else {
		c.Output = &output
	}
}

func main() {
	external, err := url.Parse(externalURL)
	check(err)
	file, err := os.Open(os.Args[1])
	check(err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(fmt.Sprintf("%v: %s", err, lines.Text()))
		}
		c.run(external)
		check(encoder.Encode(c))
	}
	check(lines.Err())
	check(os.WriteFile(os.Args[1], out.Bytes(), 0o644))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
