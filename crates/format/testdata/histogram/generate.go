// Writes golden chunks of native histograms with Prometheus's own library (module version v0.314.0) to standard
// output: sequences of samples, and the chunks that its appenders make of them. See README.md for the lines.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

var (
	out   = bufio.NewWriter(os.Stdout)
	stale = math.Float64frombits(0x7ff0000000000002)
)

// A series that changes from sample to sample.
type series struct {
	rng    *rand.Rand
	schema int32
	zt     float64
	zc     float64
	sum    float64
	gauge  bool
	custom []float64
	pos    map[int]float64
	neg    map[int]float64
	// Whether counts are integers, empty spans and split spans appear.
	whole, emptySpans, splitSpans bool
	hint                          histogram.CounterResetHint
}

func (s *series) amount() float64 {
	if s.whole {
		return float64(s.rng.Int63n(1 << uint(s.rng.Intn(20))))
	}
	return s.rng.Float64() * 10
}

func (s *series) spans(m map[int]float64) ([]histogram.Span, []float64) {
	var idxs []int
	for i := range m {
		idxs = append(idxs, i)
	}
	slices.Sort(idxs)
	var spans []histogram.Span
	var counts []float64
	next := 0
	for n, i := range idxs {
		gap := i - next
		switch {
		case n == 0 || gap > 0 || s.splitSpans && s.rng.Intn(4) == 0:
			if s.emptySpans && gap > 1 && s.rng.Intn(3) == 0 {
				spans = append(spans, histogram.Span{Offset: 1, Length: 0})
				gap--
			}
			spans = append(spans, histogram.Span{Offset: int32(gap), Length: 1})
		default:
			spans[len(spans)-1].Length++
		}
		counts = append(counts, m[i])
		next = i + 1
	}
	if s.emptySpans && s.rng.Intn(5) == 0 {
		spans = append(spans, histogram.Span{Offset: 2, Length: 0})
	}
	return spans, counts
}

func deltas(counts []float64) []int64 {
	var res []int64
	var prev int64
	for _, c := range counts {
		res = append(res, int64(c)-prev)
		prev = int64(c)
	}
	return res
}

func (s *series) float() *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{
		CounterResetHint: s.hint, Schema: s.schema, ZeroThreshold: s.zt, ZeroCount: s.zc, Sum: s.sum, CustomValues: s.custom,
	}
	if s.gauge {
		h.CounterResetHint = histogram.GaugeType
	}
	h.PositiveSpans, h.PositiveBuckets = s.spans(s.pos)
	h.NegativeSpans, h.NegativeBuckets = s.spans(s.neg)
	h.Count = h.ZeroCount
	for _, c := range append(slices.Clone(h.PositiveBuckets), h.NegativeBuckets...) {
		h.Count += c
	}
	return h
}

func (s *series) int() *histogram.Histogram {
	f := s.float()
	return &histogram.Histogram{
		CounterResetHint: f.CounterResetHint, Schema: f.Schema, ZeroThreshold: f.ZeroThreshold,
		ZeroCount: uint64(f.ZeroCount), Count: uint64(f.Count), Sum: f.Sum, CustomValues: f.CustomValues,
		PositiveSpans: f.PositiveSpans, PositiveBuckets: deltas(f.PositiveBuckets),
		NegativeSpans: f.NegativeSpans, NegativeBuckets: deltas(f.NegativeBuckets),
	}
}

// step changes the series; wild is how often in a hundred something out of the ordinary happens.
func (s *series) step(wild int) {
	s.hint = histogram.UnknownCounterReset
	grow := func(m map[int]float64, low, high int) {
		for i := range m {
			if s.rng.Intn(3) == 0 {
				m[i] += s.amount()
			}
			if s.gauge && s.rng.Intn(4) == 0 {
				m[i] = s.amount()
			}
		}
		if s.rng.Intn(100) < wild {
			m[low+s.rng.Intn(high-low)] += s.amount()
		}
		if s.rng.Intn(100) < wild {
			m[low+s.rng.Intn(high-low)] += 0
		}
		for i, c := range m {
			if c == 0 && s.rng.Intn(4) == 0 || s.rng.Intn(100) < wild/8 {
				delete(m, i)
			}
		}
	}
	if s.custom != nil {
		grow(s.pos, 0, len(s.custom)+1)
	} else {
		grow(s.pos, -20, 40)
		grow(s.neg, -10, 10)
		if s.rng.Intn(3) == 0 {
			s.zc += s.amount()
		}
	}
	s.sum += s.amount() * 1.25
	switch n := s.rng.Intn(1000); {
	case n < wild/2:
		s.hint = histogram.CounterReset
	case n < wild:
		s.hint = histogram.NotCounterReset
	case n < 2*wild && s.custom == nil:
		s.schema = int32(s.rng.Intn(13) - 4)
	case n < 3*wild && s.custom == nil:
		s.zt = []float64{0, 0.001, 1e-128, math.Ldexp(1, -243), math.Ldexp(1, 10), math.Ldexp(1, 11), 1}[s.rng.Intn(7)]
	case n < 4*wild:
		s.gauge = !s.gauge
	case n < 5*wild && s.custom != nil:
		s.custom = bounds(s.rng)
		s.pos = map[int]float64{}
	case n < 6*wild:
		// A restart: counts begin again.
		s.pos, s.neg, s.zc = map[int]float64{1: 1}, map[int]float64{}, 0
	}
}

func bounds(rng *rand.Rand) []float64 {
	all := []float64{-7.5, 0, 0.005, 0.1, 1, 2.5, 33554.43, 33554.431, 1e9, 1.0 / 3}
	var res []float64
	for _, b := range all {
		if rng.Intn(3) > 0 {
			res = append(res, b)
		}
	}
	slices.Sort(res)
	return append(res, 1e10)
}

func spanText(spans []histogram.Span) string {
	var parts []string
	for _, s := range spans {
		parts = append(parts, fmt.Sprintf("%d:%d", s.Offset, s.Length))
	}
	return strings.Join(parts, ",")
}

func list[T any](values []T, text func(T) string) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, text(v))
	}
	return strings.Join(parts, ",")
}

func bits(f float64) string { return fmt.Sprintf("%x", math.Float64bits(f)) }

func line(t int64, h *histogram.Histogram, f *histogram.FloatHistogram) {
	number := func(i int64) string { return fmt.Sprint(i) }
	if h != nil {
		fmt.Fprintf(out, "int %d %d %d %s %d %d %s|%s|%s|%s|%s|%s\n", t, h.CounterResetHint, h.Schema, bits(h.ZeroThreshold),
			h.ZeroCount, h.Count, bits(h.Sum), spanText(h.PositiveSpans), list(h.PositiveBuckets, number),
			spanText(h.NegativeSpans), list(h.NegativeBuckets, number), list(h.CustomValues, bits))
		return
	}
	fmt.Fprintf(out, "float %d %d %d %s %s %s %s|%s|%s|%s|%s|%s\n", t, f.CounterResetHint, f.Schema, bits(f.ZeroThreshold),
		bits(f.ZeroCount), bits(f.Count), bits(f.Sum), spanText(f.PositiveSpans), list(f.PositiveBuckets, bits),
		spanText(f.NegativeSpans), list(f.NegativeBuckets, bits), list(f.CustomValues, bits))
}

// run appends the samples as the head does: a new chunk after chunkSamples, else as the appender says.
func run(name string, s *series, whole bool, samples, chunkSamples, wild int) {
	s.whole = whole
	fmt.Fprintf(out, "case %s %d\n", name, chunkSamples)
	var chunk chunkenc.Chunk
	var app chunkenc.Appender
	var done []chunkenc.Chunk
	open := func() (prev chunkenc.Appender) {
		if chunk != nil {
			done = append(done, chunk)
		}
		prev = app
		if whole {
			chunk = chunkenc.NewHistogramChunk()
		} else {
			chunk = chunkenc.NewFloatHistogramChunk()
		}
		var err error
		app, err = chunk.Appender()
		check(err)
		return prev
	}
	open()
	app0 := chunkenc.Appender(nil)
	t := int64(1_700_000_000_000)
	for i := range samples {
		s.step(wild)
		t += 15_000
		if s.rng.Intn(3) == 0 {
			t += s.rng.Int63n(1000) - 500
		}
		if s.rng.Intn(50) == 0 {
			t += s.rng.Int63n(1 << uint(10+s.rng.Intn(30)))
		}
		prev := app0
		if i > 0 && chunk.NumSamples() >= chunkSamples {
			prev = open()
		}
		isStale := wild > 0 && s.rng.Intn(40) == 0
		var next chunkenc.Chunk
		var recoded bool
		var err error
		if whole {
			h := s.int()
			if isStale {
				h = &histogram.Histogram{Sum: stale, CounterResetHint: h.CounterResetHint}
			}
			line(t, h, nil)
			next, recoded, app, err = app.AppendHistogram(prev, 0, t, h, false)
		} else {
			h := s.float()
			if isStale {
				h = &histogram.FloatHistogram{Sum: stale, CounterResetHint: h.CounterResetHint}
			}
			line(t, nil, h)
			next, recoded, app, err = app.AppendFloatHistogram(prev, 0, t, h, false)
		}
		check(err)
		if next != nil {
			if !recoded {
				done = append(done, chunk)
			}
			chunk = next
		}
	}
	for _, c := range append(done, chunk) {
		fmt.Fprintf(out, "chunk %d %s\n", c.Encoding(), hex.EncodeToString(c.Bytes()))
	}
}

func main() {
	defer out.Flush()
	for n := range 12 {
		for _, whole := range []bool{true, false} {
			kind := map[bool]string{true: "int", false: "float"}[whole]
			fresh := func(seed int) *series {
				rng := rand.New(rand.NewSource(int64(seed)))
				return &series{rng: rng, schema: int32(rng.Intn(13) - 4), pos: map[int]float64{}, neg: map[int]float64{}, emptySpans: n%3 == 1, splitSpans: n%4 == 2}
			}
			wild := []int{0, 3, 10, 30}[n%4]
			run(fmt.Sprintf("%s-%d", kind, n), fresh(n), whole, 30, []int{120, 7}[n%2], wild)
			gauge := fresh(100 + n)
			gauge.gauge = true
			run(fmt.Sprintf("%s-gauge-%d", kind, n), gauge, whole, 20, 120, wild)
			custom := fresh(200 + n)
			custom.schema, custom.custom = -53, bounds(custom.rng)
			run(fmt.Sprintf("%s-custom-%d", kind, n), custom, whole, 20, 120, wild)
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
