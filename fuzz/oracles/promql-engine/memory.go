// A storage in memory: sorted series, every sample in range, nothing else.
package main

import (
	"context"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type entry struct {
	labels labels.Labels
	times  []int64
	values []float64
	// Empty, or one a sample.
	starts []int64
	// By index of the sample.
	histograms map[int]*histogram.FloatHistogram
}

type memory struct{ entries []entry }

func (m *memory) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{memory: m, mint: mint, maxt: maxt}, nil
}

type querier struct {
	memory     *memory
	mint, maxt int64
}

func (q *querier) Select(_ context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	// As in Prometheus's head and blocks, the hints alone say which samples of an open chunk are wanted. (There, chunks that
	// end before what the querier was opened for are not seen at all, which depends on where chunks end.)
	mint, maxt := q.mint, q.maxt
	if hints != nil {
		mint, maxt = hints.Start, hints.End
	}
	set := &seriesSet{at: -1}
	for _, e := range q.memory.entries {
		if !matches(e.labels, matchers) {
			continue
		}
		from := sort.Search(len(e.times), func(i int) bool { return e.times[i] >= mint })
		to := sort.Search(len(e.times), func(i int) bool { return e.times[i] > maxt })
		if from >= to {
			continue
		}
		samples := make([]chunks.Sample, 0, to-from)
		for i := from; i < to; i++ {
			s := sample{t: e.times[i], v: e.values[i], h: e.histograms[i]}
			if len(e.starts) > 0 {
				s.st = e.starts[i]
			}
			samples = append(samples, s)
		}
		set.series = append(set.series, storage.NewListSeries(e.labels, samples))
	}
	return set
}

func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (*querier) Close() error { return nil }

func matches(l labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series              { return s.series[s.at] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	t, st int64
	v     float64
	h     *histogram.FloatHistogram
}

func (s sample) T() int64              { return s.t }
func (s sample) ST() int64             { return s.st }
func (s sample) F() float64            { return s.v }
func (sample) H() *histogram.Histogram { return nil }

// FH gives a copy: the engine writes into histograms that it was given before.
func (s sample) FH() *histogram.FloatHistogram {
	if s.h == nil {
		return nil
	}
	return s.h.Copy()
}

func (s sample) Type() chunkenc.ValueType {
	if s.h != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

func (s sample) Copy() chunks.Sample { return s }
