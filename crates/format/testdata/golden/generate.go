// Writes the golden block "prometheus-3": the floats of floats.om, read back from the block that promtool 2.42
// made of it (argument 1), and two histogram series, through Prometheus's own library (module version v0.314.0)
// into argument 2.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

type hist struct {
	t  int64
	h  *histogram.Histogram
	fh *histogram.FloatHistogram
}

func (s hist) T() int64                      { return s.t }
func (s hist) ST() int64                     { return 0 }
func (s hist) F() float64                    { return 0 }
func (s hist) H() *histogram.Histogram       { return s.h }
func (s hist) FH() *histogram.FloatHistogram { return s.fh }
func (s hist) Copy() chunks.Sample           { return s }
func (s hist) Type() chunkenc.ValueType {
	if s.h != nil {
		return chunkenc.ValHistogram
	}
	return chunkenc.ValFloatHistogram
}

func main() {
	block, err := tsdb.OpenBlock(slog.Default(), os.Args[1], nil, nil)
	check(err)
	q, err := tsdb.NewBlockQuerier(block, -1<<62, 1<<62)
	check(err)
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	var series []storage.Series
	for set.Next() {
		series = append(series, set.At())
	}
	check(set.Err())
	integer, float := []chunks.Sample{}, []chunks.Sample{}
	for i := 0; i < 40; i++ {
		h := &histogram.Histogram{
			Schema: 2, Count: uint64(6 + i), Sum: float64(i) * 1.5, ZeroThreshold: 0.001, ZeroCount: 1,
			PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}},
			PositiveBuckets: []int64{int64(2 + i), 1 - int64(i)},
		}
		t := int64(1600000000000 + i*15000)
		integer = append(integer, hist{t: t, h: h})
		float = append(float, hist{t: t, fh: h.ToFloat(nil)})
	}
	series = append(series, storage.NewListSeries(labels.FromStrings("__name__", "sizes", "kind", "integer"), integer))
	series = append(series, storage.NewListSeries(labels.FromStrings("__name__", "sizes", "kind", "float"), float))
	dir, err := tsdb.CreateBlock(series, os.Args[2], 0, slog.Default())
	check(err)
	fmt.Println(dir)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
