// The samples: series of every kind that a head tells apart, scrape by scrape.
package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

const (
	stepMs    = int64(15_000)
	stepCount = 700
)

// written is one sample on its way in: a histogram of either kind, or a float.
type written struct {
	labels labels.Labels
	time   int64
	ints   *histogram.Histogram
	floats *histogram.FloatHistogram
	value  float64
}

// draw gives a sample of a series at a step; nil, nil, false if there is none.
type draw func(step int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool)

// Names with narrow_ keep their buckets, so that no chunk is written again with more of them.
var all = []struct {
	name string
	draw draw
}{
	{"narrow_counter", ints(func(k int) *histogram.Histogram { return counter(k/40, 2) })},
	{"narrow_resets", ints(func(k int) *histogram.Histogram { return counter(k%97/30, 1) })},
	{"narrow_gauge", ints(func(k int) *histogram.Histogram { return hinted(counter(k%7/6, 1), histogram.GaugeType) })},
	{"narrow_kinds", kinds},
	{"narrow_stale", ints(func(k int) *histogram.Histogram {
		if k%50 == 49 {
			return &histogram.Histogram{Sum: stale()}
		}
		return counter(k/60, 1)
	})},
	{"narrow_float_marker", floatMarker},
	{"narrow_explicit", ints(func(k int) *histogram.Histogram {
		h := counter(k/40, 1)
		switch k % 100 {
		case 33, 34:
			return hinted(h, histogram.CounterReset)
		case 66:
			return hinted(h, histogram.NotCounterReset)
		}
		return h
	})},
	{"narrow_explicit_floats", floats(func(k int) *histogram.FloatHistogram {
		h := counter(k/40, 1).ToFloat(nil)
		if k%80 == 33 {
			h.CounterResetHint = histogram.CounterReset
		}
		return h
	})},
	{"narrow_schema", ints(func(k int) *histogram.Histogram {
		h := counter(k/40, 1)
		h.Schema = int32(k / 120 % 3)
		if k%300 > 200 {
			h.ZeroThreshold = 0.5
		}
		return h
	})},
	{"narrow_becomes_gauge", ints(func(k int) *histogram.Histogram {
		if k/90%2 == 0 {
			return counter(k/40, 1)
		}
		return hinted(counter(k/40, 1), histogram.GaugeType)
	})},
	{"counter", ints(func(k int) *histogram.Histogram { return counter(k*13, 6) })},
	{"floats", floats(func(k int) *histogram.FloatHistogram { return counter(k*13, 6).ToFloat(nil) })},
	{"float_gauge", floats(func(k int) *histogram.FloatHistogram {
		h := counter(k*7%91, 5).ToFloat(nil)
		h.CounterResetHint = histogram.GaugeType
		return h
	})},
	{"custom", ints(func(k int) *histogram.Histogram { return custom(k*3, k/200) })},
	{"custom_floats", floats(func(k int) *histogram.FloatHistogram { return custom(k*3, k/200).ToFloat(nil) })},
	{"wide", ints(func(k int) *histogram.Histogram { return counter(k*1031, 60) })},
	{"wide_floats", floats(func(k int) *histogram.FloatHistogram { return counter(k*1031, 60).ToFloat(nil) })},
	{"grows", ints(func(k int) *histogram.Histogram { return grows(k) })},
	{"shrinks", ints(func(k int) *histogram.Histogram { return hinted(grows(700-k), histogram.GaugeType) })},
	{"moves", floats(func(k int) *histogram.FloatHistogram {
		h := grows(k * 37 % 300).ToFloat(nil)
		h.PositiveSpans[0].Offset = int32(k % 11)
		h.CounterResetHint = histogram.GaugeType
		return h
	})},
	{"kinds_of_counts", func(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
		if k/41%2 == 0 {
			return counter(k*5, 4), nil, 0, true
		}
		return nil, counter(k*5, 4).ToFloat(nil), 0, true
	}},
	{"sums", ints(func(k int) *histogram.Histogram {
		h := counter(k, 3)
		// Not -0, which the sender's encoder leaves out.
		h.Sum = []float64{math.NaN(), math.Inf(1), -math.MaxFloat64, 5e-324}[k/100%4]
		return h
	})},
	{"large", ints(func(k int) *histogram.Histogram {
		n := int64(1)<<55 + int64(k)
		return &histogram.Histogram{
			Count: uint64(n), Sum: 1, Schema: 8,
			PositiveSpans: []histogram.Span{{Offset: 1 << 20, Length: 1}}, PositiveBuckets: []int64{n},
		}
	})},
	{"bare", ints(func(k int) *histogram.Histogram {
		return &histogram.Histogram{Count: uint64(k), ZeroCount: uint64(k), ZeroThreshold: 1e-128, Sum: float64(k)}
	})},
	{"gaps", func(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
		return counter(k*3, 4), nil, 0, k%61 < 30
	}},
}

func ints(of func(int) *histogram.Histogram) draw {
	return func(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
		return of(k), nil, 0, true
	}
}

func floats(of func(int) *histogram.FloatHistogram) draw {
	return func(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
		return nil, of(k), 0, true
	}
}

func hinted(h *histogram.Histogram, hint histogram.CounterResetHint) *histogram.Histogram {
	h.CounterResetHint = hint
	return h
}

func stale() float64 { return math.Float64frombits(value.StaleNaN) }

// counter has n buckets above zero, and some below, of counts that grow with level.
func counter(level, n int) *histogram.Histogram {
	h := &histogram.Histogram{
		Schema: 3, ZeroThreshold: 0.001, ZeroCount: uint64(level / 2),
		PositiveSpans: []histogram.Span{{Offset: -2, Length: uint32(n - n/2)}, {Offset: 3, Length: uint32(n / 2)}},
		NegativeSpans: []histogram.Span{{Offset: 5, Length: 1}},
		Sum:           float64(level) * 1.5,
	}
	fill(h, func(at int) int64 { return int64(level * (1 + at*at%7) / 3) }, int64(level))
	return h
}

// grows gains a bucket every ten steps, first inside, then at the end, with empty spans at times.
func grows(k int) *histogram.Histogram {
	inner, outer := 1+k/10%20, 1+k/200
	spans := []histogram.Span{{Offset: 0, Length: uint32(inner)}, {Offset: int32(25 - inner), Length: uint32(outer)}}
	if k%30 < 10 {
		spans = append(spans, histogram.Span{Offset: 4, Length: 0})
	}
	h := &histogram.Histogram{Schema: 1, ZeroThreshold: 0.001, PositiveSpans: spans, Sum: float64(k)}
	fill(h, func(at int) int64 { return int64(k / (1 + at%3)) }, 0)
	return h
}

func custom(level, bounds int) *histogram.Histogram {
	h := &histogram.Histogram{
		Schema: histogram.CustomBucketsSchema, Sum: float64(level),
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}},
		CustomValues:  [][]float64{{0.1, 0.25, 1, 20}, {1.0 / 3, 1, 7, 1e9}, {-5, 0.5, 1, 2}, {0.1, 0.25, 1, 20}}[bounds%4],
	}
	fill(h, func(at int) int64 { return int64(level * (at + 1) / 2) }, 0)
	return h
}

// fill sets the buckets above zero by their place, those below to one count, and the count of all.
func fill(h *histogram.Histogram, count func(at int) int64, below int64) {
	total, before, at := int64(h.ZeroCount), int64(0), 0
	for _, span := range h.PositiveSpans {
		for range span.Length {
			n := count(at)
			h.PositiveBuckets = append(h.PositiveBuckets, n-before)
			total, before, at = total+n, n, at+1
		}
	}
	if len(h.NegativeSpans) > 0 {
		h.NegativeBuckets = []int64{below}
		total += below
	}
	h.Count = uint64(total)
}

// kinds goes from floats to histograms and back.
func kinds(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
	switch k / 37 % 3 {
	case 0:
		return nil, nil, float64(k), true
	case 1:
		return counter(k/60, 1), nil, 0, true
	default:
		return nil, counter(k/60, 1).ToFloat(nil), 0, true
	}
}

// floatMarker ends in the marker of a float, as scrapes that fail write it.
func floatMarker(k int) (*histogram.Histogram, *histogram.FloatHistogram, float64, bool) {
	switch {
	case k%45 == 44:
		return nil, nil, stale(), true
	case k/45%2 == 0:
		return counter(k/60, 1), nil, 0, true
	default:
		return nil, counter(k/60, 1).ToFloat(nil), 0, true
	}
}

// scrape gives the samples of a step, all of one time.
func scrape(step int, time int64) []written {
	var out []written
	for _, one := range all {
		h, fh, v, isThere := one.draw(step)
		if isThere {
			lset := labels.FromStrings("__name__", one.name, "job", "histograms")
			out = append(out, written{lset, time, h, fh, v})
		}
	}
	return out
}

func intText(h *histogram.Histogram) string {
	if value.IsStaleNaN(h.Sum) {
		return "stale"
	}
	out := head("i", h.Schema, h.ZeroThreshold, h.Sum, h.CustomValues)
	fmt.Fprintf(out, " %d %d", h.Count, h.ZeroCount)
	side(out, "+", h.PositiveBucketIterator())
	side(out, "-", h.NegativeBucketIterator())
	return out.String()
}

func floatText(h *histogram.FloatHistogram) string {
	if value.IsStaleNaN(h.Sum) {
		return "stale"
	}
	out := head("f", h.Schema, h.ZeroThreshold, h.Sum, h.CustomValues)
	fmt.Fprintf(out, " %016x %016x", math.Float64bits(h.Count), math.Float64bits(h.ZeroCount))
	floatSide(out, "+", h.PositiveBucketIterator())
	floatSide(out, "-", h.NegativeBucketIterator())
	return out.String()
}

func head(kind string, schema int32, threshold, sum float64, bounds []float64) *strings.Builder {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s %d %016x %016x [", kind, schema, math.Float64bits(threshold), math.Float64bits(sum))
	for at, bound := range bounds {
		if at > 0 {
			out.WriteString(" ")
		}
		fmt.Fprintf(out, "%016x", math.Float64bits(bound))
	}
	out.WriteString("]")
	return out
}

func side(out *strings.Builder, sign string, it histogram.BucketIterator[uint64]) {
	for it.Next() {
		if one := it.At(); one.Count != 0 {
			fmt.Fprintf(out, " %s%d:%d", sign, one.Index, one.Count)
		}
	}
}

func floatSide(out *strings.Builder, sign string, it histogram.BucketIterator[float64]) {
	for it.Next() {
		if one := it.At(); one.Count != 0 {
			fmt.Fprintf(out, " %s%d:%016x", sign, one.Index, math.Float64bits(one.Count))
		}
	}
}
