// Writes golden start times to crates/format/testdata with Prometheus's own library. Argument: that directory.
// xor2/starts.txt has a line for each NAME.chunk beside it: the name, and the start time of each sample.
// histogram-starts/chunks.txt has four lines for each case: its name; "chunk" and the bytes of a chunk with start times;
// "plain" and those of the chunk of the same samples without; "starts" and the start time of each sample.
package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const first, step = int64(1700000000000), int64(15000)

func main() {
	chunks, err := filepath.Glob(filepath.Join(os.Args[1], "xor2", "*.chunk"))
	check(err)
	var text strings.Builder
	for _, path := range chunks {
		bytes, err := os.ReadFile(path)
		check(err)
		chunk, err := chunkenc.FromData(chunkenc.EncXOR2, bytes)
		check(err)
		text.WriteString(strings.TrimSuffix(filepath.Base(path), ".chunk"))
		it := chunk.Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			fmt.Fprintf(&text, " %d", it.AtST())
		}
		check(it.Err())
		text.WriteString("\n")
	}
	check(os.WriteFile(filepath.Join(os.Args[1], "xor2", "starts.txt"), []byte(text.String()), 0o644))
	writeHistograms()
}

func writeHistograms() {
	cases := map[string]func(i int64) int64{
		"known":   func(i int64) int64 { return first - 5000 },
		"deltas":  func(i int64) int64 { return first + (i-1)*step },
		"restart": func(i int64) int64 { return first - 7 + i/50*50*step },
		"late": func(i int64) int64 {
			if i < 60 {
				return 0
			}
			return first + i*i
		},
		"second": func(i int64) int64 { return i * 1000 },
		"leaps":  func(i int64) int64 { return first - (int64(1) << uint(i%60)) },
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		for _, count := range []int64{1, 2, 120, 200} {
			writeInts(&text, fmt.Sprintf("ints-%s-%d", name, count), cases[name], count)
		}
		writeFloats(&text, fmt.Sprintf("floats-%s-%d", name, 150), cases[name], 150)
	}
	dir := filepath.Join(os.Args[1], "histogram-starts")
	check(os.MkdirAll(dir, 0o755))
	check(os.WriteFile(filepath.Join(dir, "chunks.txt"), []byte(text.String()), 0o644))
}

// Grows, and gets more buckets now and then, which has the chunk written again; ends with staleness markers.
func ints(i, count int64) *histogram.Histogram {
	if count > 100 && i > count-3 {
		return &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}
	}
	n := uint32(2 + i/40)
	buckets := make([]int64, n)
	buckets[0] = i
	return &histogram.Histogram{
		Schema: 1, ZeroThreshold: 0.001, ZeroCount: uint64(i / 3), Count: uint64(i/3) + uint64(i)*uint64(n), Sum: float64(i) * 1.5,
		PositiveSpans: []histogram.Span{{Offset: -1, Length: n}}, PositiveBuckets: buckets,
	}
}

func writeInts(out *strings.Builder, name string, start func(i int64) int64, count int64) {
	withStarts, plain := newAppender(chunkenc.EncHistogramST), newAppender(chunkenc.EncHistogram)
	var text strings.Builder
	for i := range count {
		withStarts.ints(start(i), first+i*step, ints(i, count))
		plain.ints(0, first+i*step, ints(i, count))
		fmt.Fprintf(&text, " %d", start(i))
	}
	fmt.Fprintf(out, "%s\nchunk %x\nplain %x\nstarts%s\n", name, withStarts.chunk.Bytes(), plain.chunk.Bytes(), text.String())
}

func writeFloats(out *strings.Builder, name string, start func(i int64) int64, count int64) {
	withStarts, plain := newAppender(chunkenc.EncFloatHistogramST), newAppender(chunkenc.EncFloatHistogram)
	var text strings.Builder
	for i := range count {
		withStarts.floats(start(i), first+i*step, ints(i, count).ToFloat(nil))
		plain.floats(0, first+i*step, ints(i, count).ToFloat(nil))
		fmt.Fprintf(&text, " %d", start(i))
	}
	fmt.Fprintf(out, "%s\nchunk %x\nplain %x\nstarts%s\n", name, withStarts.chunk.Bytes(), plain.chunk.Bytes(), text.String())
}

type open struct {
	chunk    chunkenc.Chunk
	appender chunkenc.Appender
}

func newAppender(encoding chunkenc.Encoding) *open {
	chunk, err := chunkenc.NewEmptyChunk(encoding)
	check(err)
	appender, err := chunk.Appender()
	check(err)
	return &open{chunk, appender}
}

func (o *open) ints(st, t int64, h *histogram.Histogram) {
	chunk, recoded, appender, err := o.appender.AppendHistogram(nil, st, t, h, false)
	o.settle(chunk, recoded, appender, err)
}

func (o *open) floats(st, t int64, h *histogram.FloatHistogram) {
	chunk, recoded, appender, err := o.appender.AppendFloatHistogram(nil, st, t, h, false)
	o.settle(chunk, recoded, appender, err)
}

func (o *open) settle(chunk chunkenc.Chunk, recoded bool, appender chunkenc.Appender, err error) {
	check(err)
	if chunk != nil {
		if !recoded {
			panic("a chunk of its own")
		}
		o.chunk = chunk
	}
	o.appender = appender
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
