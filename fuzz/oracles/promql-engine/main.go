// Program engine evaluates queries with the Prometheus PromQL engine, as a black box.
//
// It reads one JSON object per line and prints one per line. A line with "series" replaces the data of all
// lines after it; a line with "query" asks. Times are milliseconds; values are the 16 hexadecimal digits of
// their bits, so that NaNs, staleness markers and the sign of zero survive. A step of 0 is an instant query
// at "start". "delayed" switches delayed name removal, "typed" the labels __type__ and __unit__. "parse" asks only for
// the printed form. All experimental functions are on. A histogram stands beside
// the times and values, with the index of its sample (in questions) or its time (in answers).
// Not here: parsing without data (../parse), and any judgement of the answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	samplesMax = 50_000_000
	timeout    = 30 * time.Second
)

type question struct {
	Series   []rawSeries `json:"series"`
	Query    string      `json:"query"`
	Start    int64       `json:"start"`
	End      int64       `json:"end"`
	Step     int64       `json:"step"`
	Lookback int64       `json:"lookback"`
	Delayed  bool        `json:"delayed"`
	Typed    bool        `json:"typed"`
	Parse    bool        `json:"parse"`
}

type rawSeries struct {
	Labels [][2]string `json:"labels"`
	Times  []int64     `json:"times"`
	Values []string    `json:"values"`
	// Start times, one a sample, or none at all.
	Starts     []int64        `json:"starts,omitempty"`
	Histograms []rawHistogram `json:"histograms,omitempty"`
}

type rawHistogram struct {
	At            int64      `json:"at"`
	Hint          int        `json:"hint"`
	Schema        int32      `json:"schema"`
	ZeroThreshold string     `json:"zero_threshold"`
	ZeroCount     string     `json:"zero_count"`
	Count         string     `json:"count"`
	Sum           string     `json:"sum"`
	PositiveSpans [][2]int64 `json:"positive_spans"`
	Positive      []string   `json:"positive"`
	NegativeSpans [][2]int64 `json:"negative_spans"`
	Negative      []string   `json:"negative"`
	Bounds        []string   `json:"bounds"`
}

type answer struct {
	Type     string      `json:"type,omitempty"`
	Series   []rawSeries `json:"series"`
	Text     string      `json:"text,omitempty"`
	Warnings []string    `json:"warnings"`
	Infos    []string    `json:"infos"`
	Error    string      `json:"error,omitempty"`
}

func bits(v float64) string { return fmt.Sprintf("%016x", math.Float64bits(v)) }

func pairs(l labels.Labels) [][2]string {
	out := [][2]string{}
	l.Range(func(l labels.Label) { out = append(out, [2]string{l.Name, l.Value}) })
	return out
}

func fromBits(text string) float64 {
	u, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		panic(err)
	}
	return math.Float64frombits(u)
}

func allFromBits(texts []string) []float64 {
	var out []float64
	for _, text := range texts {
		out = append(out, fromBits(text))
	}
	return out
}

func allBits(values []float64) []string {
	out := []string{}
	for _, v := range values {
		out = append(out, bits(v))
	}
	return out
}

func spansOf(raw [][2]int64) []histogram.Span {
	var out []histogram.Span
	for _, s := range raw {
		out = append(out, histogram.Span{Offset: int32(s[0]), Length: uint32(s[1])})
	}
	return out
}

func rawSpans(spans []histogram.Span) [][2]int64 {
	out := [][2]int64{}
	for _, s := range spans {
		out = append(out, [2]int64{int64(s.Offset), int64(s.Length)})
	}
	return out
}

func (r rawHistogram) decode() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		CounterResetHint: histogram.CounterResetHint(r.Hint),
		Schema:           r.Schema,
		ZeroThreshold:    fromBits(r.ZeroThreshold),
		ZeroCount:        fromBits(r.ZeroCount),
		Count:            fromBits(r.Count),
		Sum:              fromBits(r.Sum),
		PositiveSpans:    spansOf(r.PositiveSpans),
		PositiveBuckets:  allFromBits(r.Positive),
		NegativeSpans:    spansOf(r.NegativeSpans),
		NegativeBuckets:  allFromBits(r.Negative),
		CustomValues:     allFromBits(r.Bounds),
	}
}

func encode(at int64, h *histogram.FloatHistogram) rawHistogram {
	return rawHistogram{
		At:            at,
		Hint:          int(h.CounterResetHint),
		Schema:        h.Schema,
		ZeroThreshold: bits(h.ZeroThreshold),
		ZeroCount:     bits(h.ZeroCount),
		Count:         bits(h.Count),
		Sum:           bits(h.Sum),
		PositiveSpans: rawSpans(h.PositiveSpans),
		Positive:      allBits(h.PositiveBuckets),
		NegativeSpans: rawSpans(h.NegativeSpans),
		Negative:      allBits(h.NegativeBuckets),
		Bounds:        allBits(h.CustomValues),
	}
}

func load(raw []rawSeries) (*memory, error) {
	m := &memory{}
	for _, r := range raw {
		b := labels.NewScratchBuilder(len(r.Labels))
		for _, p := range r.Labels {
			b.Add(p[0], p[1])
		}
		b.Sort()
		s := entry{labels: b.Labels(), times: r.Times, starts: r.Starts, histograms: map[int]*histogram.FloatHistogram{}}
		for _, h := range r.Histograms {
			s.histograms[int(h.At)] = h.decode()
		}
		for _, v := range r.Values {
			u, err := strconv.ParseUint(v, 16, 64)
			if err != nil {
				return nil, err
			}
			s.values = append(s.values, math.Float64frombits(u))
		}
		if len(s.times) != len(s.values) {
			return nil, fmt.Errorf("%d times and %d values", len(s.times), len(s.values))
		}
		m.entries = append(m.entries, s)
	}
	sort.Slice(m.entries, func(i, j int) bool { return labels.Compare(m.entries[i].labels, m.entries[j].labels) < 0 })
	return m, nil
}

func ask(engine *promql.Engine, m *memory, q question) answer {
	ctx := context.Background()
	opts := promql.NewPrometheusQueryOpts(false, time.Duration(q.Lookback)*time.Millisecond, nil)
	start, end := time.UnixMilli(q.Start), time.UnixMilli(q.End)
	var query promql.Query
	var err error
	if q.Step > 0 {
		query, err = engine.NewRangeQuery(ctx, m, opts, q.Query, start, end, time.Duration(q.Step)*time.Millisecond)
	} else {
		query, err = engine.NewInstantQuery(ctx, m, opts, q.Query, start)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer query.Close()
	result := query.Exec(ctx)
	a := answer{Series: []rawSeries{}}
	a.Warnings, a.Infos = result.Warnings.AsStrings(q.Query, 0, 0)
	if result.Err != nil {
		a.Error = result.Err.Error()
		return a
	}
	a.Type = string(result.Value.Type())
	switch v := result.Value.(type) {
	case promql.Scalar:
		a.Series = append(a.Series, rawSeries{Times: []int64{v.T}, Values: []string{bits(v.V)}})
	case promql.String:
		a.Text = v.V
	case promql.Vector:
		for _, s := range v {
			r := rawSeries{Labels: pairs(s.Metric), Times: []int64{}, Values: []string{}}
			if s.H != nil {
				r.Histograms = append(r.Histograms, encode(s.T, s.H))
			} else {
				r.Times, r.Values = []int64{s.T}, []string{bits(s.F)}
			}
			a.Series = append(a.Series, r)
		}
	case promql.Matrix:
		for _, s := range v {
			r := rawSeries{Labels: pairs(s.Metric), Times: []int64{}, Values: []string{}}
			for _, p := range s.Floats {
				r.Times = append(r.Times, p.T)
				r.Values = append(r.Values, bits(p.F))
			}
			for _, p := range s.Histograms {
				r.Histograms = append(r.Histograms, encode(p.T, p.H))
			}
			a.Series = append(a.Series, r)
		}
	}
	return a
}

func newParser() parser.Parser {
	return parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true,
		EnableBinopFillModifiers:    true,
	})
}

func parse(p parser.Parser, query string) answer {
	expr, err := p.ParseExpr(query)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Type: string(expr.Type()), Text: expr.String()}
}

type features struct{ delayed, typed bool }

func newEngine(f features) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples:               samplesMax,
		Timeout:                  timeout,
		LookbackDelta:            5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnableDelayedNameRemoval: f.delayed,
		EnableTypeAndUnitLabels:  f.typed,
		UseStartTimestamps:       true,
		Parser:                   newParser(),
	})
}

func run() error {
	engines := map[features]*promql.Engine{}
	for _, f := range []features{{}, {delayed: true}, {typed: true}, {delayed: true, typed: true}} {
		engines[f] = newEngine(f)
	}
	p := newParser()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<28)
	writer := bufio.NewWriter(os.Stdout)
	out := json.NewEncoder(writer)
	out.SetEscapeHTML(false)
	m := &memory{}
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return fmt.Errorf("line %q: %w", in.Text(), err)
		}
		if q.Series != nil {
			loaded, err := load(q.Series)
			if err != nil {
				return err
			}
			m = loaded
		}
		if q.Query == "" && !q.Parse {
			continue
		}
		var a answer
		if q.Parse {
			a = parse(p, q.Query)
		} else {
			a = ask(engines[features{q.Delayed, q.Typed}], m, q)
		}
		if err := out.Encode(a); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}
