// Writes the golden bodies of remote write with Prometheus's own client code (module version v0.314.0) into the
// directory of argument 1: the same series as a request of version 1.0 and of version 2.0, not compressed.
package main

import (
	"math"
	"os"
	"path/filepath"

	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

type series struct {
	labels    labels.Labels
	times     []int64
	values    []float64
	starts    []int64
	exemplars []exemplar.Exemplar
	integer   []*histogram.Histogram
	float     []*histogram.FloatHistogram
	kind      model.MetricType
	help      string
	unit      string
}

const t0 = 1_700_000_000_000

func all() []series {
	stale := math.Float64frombits(0x7ff0000000000002)
	exponential := &histogram.Histogram{
		Schema: 3, Count: 21, Sum: 18.4, ZeroThreshold: 1e-128, ZeroCount: 2,
		PositiveSpans:   []histogram.Span{{Offset: -2, Length: 2}, {Offset: 3, Length: 3}},
		PositiveBuckets: []int64{1, 2, -2, 1, -1},
		NegativeSpans:   []histogram.Span{{Offset: 4, Length: 2}},
		NegativeBuckets: []int64{5, 1},
	}
	custom := &histogram.Histogram{
		Schema: -53, Count: 7, Sum: -0.5, CounterResetHint: histogram.CounterReset,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}},
		PositiveBuckets: []int64{1, 2, 0},
		CustomValues:    []float64{0.005, 2.5, 1e9},
	}
	gauge := exponential.ToFloat(nil)
	gauge.CounterResetHint = histogram.GaugeType
	gauge.PositiveBuckets[1] = 2.75
	return []series{
		{
			labels: labels.FromStrings("__name__", "http_requests_total", "instance", "a:9090", "job", "api"),
			times:  []int64{t0, t0 + 15000, t0 + 30000}, values: []float64{1.5, math.Copysign(0, -1), stale},
			starts:    []int64{t0 - 1000, 0, t0 - 1000},
			exemplars: []exemplar.Exemplar{{Labels: labels.FromStrings("trace_id", "abc"), Value: 0.25, Ts: t0 + 1, HasTs: true}},
			kind:      model.MetricTypeCounter, help: "Requests answered.",
		},
		{
			labels: labels.FromStrings("__name__", "http_requests_total", "instance", "b:9090", "job", "api"),
			times:  []int64{-5}, values: []float64{math.Inf(1)},
			kind: model.MetricTypeCounter, help: "Requests answered.",
		},
		{
			labels: labels.FromStrings("__name__", "größe", "a.b/c", "ü", "long", string(make128('x'))),
			times:  []int64{t0}, values: []float64{0}, kind: model.MetricTypeGauge, unit: "bytes",
		},
		{
			labels: labels.FromStrings("__name__", "rpc_seconds_bucket", "le", "0.1"),
			times:  []int64{t0}, values: []float64{3}, kind: model.MetricTypeHistogram, help: "Calls.", unit: "seconds",
		},
		{
			labels: labels.FromStrings("__name__", "rpc_seconds_count"),
			times:  []int64{t0}, values: []float64{3}, kind: model.MetricTypeHistogram, help: "Calls.", unit: "seconds",
		},
		{
			labels: labels.FromStrings("__name__", "latency_seconds"), kind: model.MetricTypeHistogram, help: "Native.",
			times:   []int64{t0, t0 + 15000},
			starts:  []int64{t0 - 7, 0},
			integer: []*histogram.Histogram{exponential, {Sum: stale}},
		},
		{
			labels: labels.FromStrings("__name__", "custom_seconds"), kind: model.MetricTypeUnknown,
			times:   []int64{t0},
			integer: []*histogram.Histogram{custom},
		},
		{
			labels: labels.FromStrings("__name__", "queue_seconds"), kind: model.MetricTypeGaugeHistogram, unit: "seconds",
			times: []int64{t0, t0 + 15000},
			float: []*histogram.FloatHistogram{gauge, custom.ToFloat(nil)},
		},
	}
}

func make128(c byte) []byte {
	out := make([]byte, 128)
	for i := range out {
		out[i] = c
	}
	return out
}

func start(s series, i int) int64 {
	if i < len(s.starts) {
		return s.starts[i]
	}
	return 0
}

// requests gives the series as a request of each version.
func requests(all []series) (one prompb.WriteRequest, two writev2.Request) {
	symbols := writev2.NewSymbolTable()
	for _, s := range all {
		ts1 := prompb.TimeSeries{Labels: prompb.FromLabels(s.labels, nil)}
		ts2 := writev2.TimeSeries{LabelsRefs: symbols.SymbolizeLabels(s.labels, nil)}
		for i, v := range s.values {
			ts1.Samples = append(ts1.Samples, prompb.Sample{Timestamp: s.times[i], Value: v})
			ts2.Samples = append(ts2.Samples, writev2.Sample{Timestamp: s.times[i], Value: v, StartTimestamp: start(s, i)})
		}
		for _, e := range s.exemplars {
			ts1.Exemplars = append(ts1.Exemplars, prompb.Exemplar{Labels: prompb.FromLabels(e.Labels, nil), Value: e.Value, Timestamp: e.Ts})
			ts2.Exemplars = append(ts2.Exemplars, writev2.Exemplar{LabelsRefs: symbols.SymbolizeLabels(e.Labels, nil), Value: e.Value, Timestamp: e.Ts})
		}
		for i, h := range s.integer {
			ts1.Histograms = append(ts1.Histograms, prompb.FromIntHistogram(s.times[i], h))
			ts2.Histograms = append(ts2.Histograms, writev2.FromIntHistogram(start(s, i), s.times[i], h))
		}
		for i, h := range s.float {
			ts1.Histograms = append(ts1.Histograms, prompb.FromFloatHistogram(s.times[i], h))
			ts2.Histograms = append(ts2.Histograms, writev2.FromFloatHistogram(start(s, i), s.times[i], h))
		}
		ts2.Metadata = writev2.Metadata{
			Type:    writev2.FromMetadataType(s.kind),
			HelpRef: symbols.Symbolize(s.help), UnitRef: symbols.Symbolize(s.unit),
		}
		one.Timeseries = append(one.Timeseries, ts1)
		two.Timeseries = append(two.Timeseries, ts2)
	}
	two.Symbols = symbols.Symbols()
	return one, two
}

func main() {
	write := func(name string, body []byte, err error) {
		check(err)
		check(os.WriteFile(filepath.Join(os.Args[1], name), body, 0o644))
	}
	one, two := requests(all())
	body, err := one.Marshal()
	write("request-1.0.bin", body, err)
	body, err = two.OptimizedMarshal(nil)
	write("request-2.0.bin", body, err)
	// Those without histograms.
	_, floats := requests(all()[:5])
	body, err = floats.OptimizedMarshal(nil)
	write("floats-2.0.bin", body, err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
