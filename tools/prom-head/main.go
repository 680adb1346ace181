// Writes the golden Prometheus head "prometheus-3": a data directory with zstd log, m-mapped chunks, out-of-order log,
// deletions, native histograms, exemplars, metadata, duplicate refs and samples with start times, made by Prometheus's
// own library (module version v0.314.0) in argument 1; and the floats that the library reads out of a copy of it, one
// `labels<TAB>time<TAB>value bits` a line, in argument 2.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

const start = int64(1_700_000_000_000) / 7_200_000 * 7_200_000

func options() *tsdb.Options {
	o := tsdb.DefaultOptions()
	o.WALCompression = compression.Zstd
	o.OutOfOrderTimeWindow = 3_600_000
	o.EnableExemplarStorage = true
	o.MaxExemplars = 100
	o.RetentionDuration = 0
	return o
}

func main() {
	dir := os.Args[1]
	db, err := tsdb.Open(dir, slog.Default(), nil, options(), nil)
	check(err)
	db.DisableCompactions()
	ctx := context.Background()
	name := func(i int) labels.Labels {
		return labels.FromStrings("__name__", "m", "i", fmt.Sprint(i), "text", "a\"b\\é\n")
	}
	for step := int64(0); step < 300; step++ {
		app := db.Appender(ctx)
		for i := 0; i < 8; i++ {
			v := float64(step) * float64(i)
			if i%2 == 1 {
				v = math.Round(math.Sin(float64(step))*100) / 100
			}
			ref, err := app.Append(0, name(i), start+step*15000+int64(i), v)
			check(err)
			if step == 5 {
				_, err = app.AppendExemplar(ref, name(i), exemplar.Exemplar{Labels: labels.FromStrings("trace", "x"), Value: 1, Ts: start + step*15000})
				check(err)
				_, err = app.UpdateMetadata(ref, name(i), metadata.Metadata{Type: "counter", Help: "help", Unit: "s"})
				check(err)
			}
		}
		if step%10 == 0 {
			h := &histogram.Histogram{
				Schema: 2, Count: uint64(6 + step), Sum: 1.5, ZeroThreshold: 0.001, ZeroCount: 1,
				PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{2 + step, 1 - step},
			}
			t := start + step*15000
			_, err = app.AppendHistogram(0, labels.FromStrings("__name__", "h", "kind", "integer"), t, h, nil)
			check(err)
			_, err = app.AppendHistogram(0, labels.FromStrings("__name__", "h", "kind", "float"), t, nil, h.ToFloat(nil))
			check(err)
			custom := &histogram.Histogram{
				Schema: histogram.CustomBucketsSchema, Count: 3, Sum: 2,
				PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{1, 1}, CustomValues: []float64{0.5, 2},
			}
			_, err = app.AppendHistogram(0, labels.FromStrings("__name__", "h", "kind", "custom"), t, custom, nil)
			check(err)
		}
		check(app.Commit())
	}
	for step := int64(100); step < 280; step++ {
		app := db.Appender(ctx)
		for i := 0; i < 3; i++ {
			_, err := app.Append(0, name(i), start+step*15000+7000, float64(-step))
			check(err)
		}
		check(app.Commit())
	}
	check(db.Delete(ctx, start+20*15000, start+40*15000, labels.MustNewMatcher(labels.MatchEqual, "i", "4")))
	db.ForceHeadMMap()
	check(db.Close())
	more(dir)
	dump(dir, os.Args[2])
}

// more adds records that an appender does not write.
func more(dir string) {
	log, err := wlog.New(slog.Default(), nil, filepath.Join(dir, "wal"), compression.Snappy)
	check(err)
	lset := labels.FromStrings("__name__", "twice", "x", "y")
	var enc record.Encoder
	check(log.Log(enc.Series([]record.RefSeries{{Ref: 1000, Labels: lset}, {Ref: 5_000_000_000, Labels: lset}}, nil)))
	t := start + 4_000_000
	check(log.Log(enc.Samples([]record.RefSample{{Ref: 1000, T: t, V: 1}, {Ref: 5_000_000_000, T: t + 1000, V: 2}}, nil)))
	check(log.Log(enc.Samples([]record.RefSample{{Ref: 5_000_000_000, T: t + 1000, V: 3}, {Ref: 1000, T: t + 2000, V: 4}}, nil)))
	check(log.Log(enc.Samples([]record.RefSample{{Ref: 77_777, T: t, V: 1}}, nil)))
	withStart := record.Encoder{EnableSTStorage: true}
	check(log.Log(withStart.Samples([]record.RefSample{
		{Ref: 1000, ST: t, T: t + 3000, V: 5}, {Ref: 1000, ST: t, T: t + 4000, V: 6},
		{Ref: 1000, ST: 0, T: t + 5000, V: 7}, {Ref: 1000, ST: t + 5000, T: t + 6000, V: 8},
	}, nil)))
	check(log.Log([]byte{200, 1, 2, 3}))
	check(log.Close())
}

func dump(dir, path string) {
	copied, err := os.MkdirTemp("", "prom-head")
	check(err)
	defer os.RemoveAll(copied)
	check(exec.Command("cp", "-r", dir+"/.", copied).Run())
	db, err := tsdb.Open(copied, slog.Default(), nil, options(), nil)
	check(err)
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	check(err)
	out, err := os.Create(path)
	check(err)
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				t, v := it.At()
				fmt.Fprintf(out, "%s\t%d\t%016x\n", set.At().Labels(), t, math.Float64bits(v))
			}
		}
		check(it.Err())
	}
	check(set.Err())
	check(out.Close())
	check(q.Close())
	check(db.Close())
	_ = chunks.HeadSeriesRef(0)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
