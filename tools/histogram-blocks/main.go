// Native histograms in blocks, by Prometheus's own library (module version v0.314.0).
//
//	send URL START     sends the samples to a server by remote write 2.0, one request a scrape
//	own DIR START      writes the same samples through the library's head into blocks below DIR
//	dump DIR           prints what the library reads out of the blocks below DIR, one sample a line
//	compare OURS OWN   compares two directories of blocks: samples bit for bit, hints, chunks, headers
//	samples OURS OWN   as compare, but for headers: chunks that were written again know less of resets
//
// START is in milliseconds, aligned to two hours; the samples reach over two windows from there.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

const windowMs = int64(7_200_000)

func main() {
	if len(os.Args) < 3 {
		panic("usage: send URL START | own DIR START | dump DIR | compare OURS OWN | samples OURS OWN")
	}
	switch os.Args[1] {
	case "send":
		send(os.Args[2], startArg())
	case "own":
		own(os.Args[2], startArg())
	case "dump":
		dump(os.Args[2])
	case "compare":
		compare(os.Args[2], os.Args[3], compareChunks)
	case "samples":
		compare(os.Args[2], os.Args[3], func(string, []chunk, []chunk) int { return 0 })
	default:
		panic(os.Args[1])
	}
}

func startArg() int64 {
	start, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	return start
}

func send(url string, start int64) {
	for step := 0; step < stepCount; step++ {
		table := writev2.NewSymbolTable()
		var request writev2.Request
		for _, one := range scrape(step, start+int64(step)*stepMs) {
			series := writev2.TimeSeries{LabelsRefs: table.SymbolizeLabels(one.labels, nil)}
			switch {
			case one.ints != nil:
				series.Histograms = []writev2.Histogram{writev2.FromIntHistogram(0, one.time, one.ints)}
			case one.floats != nil:
				series.Histograms = []writev2.Histogram{writev2.FromFloatHistogram(0, one.time, one.floats)}
			default:
				series.Samples = []writev2.Sample{{Timestamp: one.time, Value: one.value}}
			}
			request.Timeseries = append(request.Timeseries, series)
		}
		request.Symbols = table.Symbols()
		body, err := request.Marshal()
		check(err)
		post, err := http.NewRequest("POST", url, bytes.NewReader(snappy.Encode(nil, body)))
		check(err)
		post.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
		post.Header.Set("Content-Encoding", "snappy")
		answer, err := http.DefaultClient.Do(post)
		check(err)
		answer.Body.Close()
		if answer.StatusCode/100 != 2 {
			panic(answer.Status)
		}
	}
}

func own(dir string, start int64) {
	options := tsdb.DefaultOptions()
	options.RetentionDuration = 0
	db, err := tsdb.Open(dir, slog.Default(), nil, options, nil)
	check(err)
	db.DisableCompactions()
	for step := 0; step <= stepCount; step++ {
		time := start + int64(step)*stepMs
		if step == stepCount {
			// Chunks that are open when a block is written are cut from it, and forget what they say of resets: the next
			// window closes them.
			time = start + 2*windowMs
		}
		app := db.Appender(context.Background())
		for _, one := range scrape(step, time) {
			if one.ints == nil && one.floats == nil {
				_, err = app.Append(0, one.labels, one.time, one.value)
			} else {
				_, err = app.AppendHistogram(0, one.labels, one.time, one.ints, one.floats)
			}
			check(err)
		}
		check(app.Commit())
	}
	for window := start; window < start+2*windowMs; window += windowMs {
		check(db.CompactHead(tsdb.NewRangeHead(db.Head(), window, window+windowMs-1)))
	}
	check(db.Close())
}

type sample struct {
	time int64
	hint histogram.CounterResetHint
	// text is what the sample says, bit for bit, without its hint and without buckets that nothing was observed in.
	text string
}

type chunk struct {
	minTime, maxTime int64
	encoding         chunkenc.Encoding
	bytes            []byte
}

type series struct {
	samples []sample
	chunks  []chunk
}

func read(dir string) map[string]*series {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	check(err)
	out := map[string]*series{}
	var blocks []*tsdb.Block
	for _, path := range paths {
		block, err := tsdb.OpenBlock(slog.Default(), filepath.Dir(path), nil, nil)
		check(err)
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		panic("no blocks below " + dir)
	}
	sort.Slice(blocks, func(i, j int) bool { return blocks[i].MinTime() < blocks[j].MinTime() })
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	for _, block := range blocks {
		querier, err := tsdb.NewBlockQuerier(block, math.MinInt64, math.MaxInt64)
		check(err)
		set := querier.Select(context.Background(), true, nil, all)
		for set.Next() {
			name := set.At().Labels().String()
			if out[name] == nil {
				out[name] = &series{}
			}
			readSamples(set.At().Iterator(nil), out[name])
		}
		check(set.Err())
		check(querier.Close())
		readChunks(block, out)
		check(block.Close())
	}
	return out
}

func readSamples(it chunkenc.Iterator, out *series) {
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		one := sample{time: it.AtT()}
		switch kind {
		case chunkenc.ValFloat:
			_, value := it.At()
			one.text = fmt.Sprintf("v %016x", math.Float64bits(value))
		case chunkenc.ValHistogram:
			_, h := it.AtHistogram(nil)
			one.hint, one.text = h.CounterResetHint, intText(h)
		case chunkenc.ValFloatHistogram:
			_, h := it.AtFloatHistogram(nil)
			one.hint, one.text = h.CounterResetHint, floatText(h)
		}
		out.samples = append(out.samples, one)
	}
	check(it.Err())
}

func readChunks(block *tsdb.Block, out map[string]*series) {
	index, err := block.Index()
	check(err)
	reader, err := block.Chunks()
	check(err)
	name, value := index.Postings(context.Background(), "", "")
	check(value)
	var builder labels.ScratchBuilder
	var metas []chunks.Meta
	for name.Next() {
		check(index.Series(name.At(), &builder, &metas))
		one := out[builder.Labels().String()]
		for _, meta := range metas {
			body, _, err := reader.ChunkOrIterable(meta)
			check(err)
			one.chunks = append(one.chunks, chunk{meta.MinTime, meta.MaxTime, body.Encoding(), bytes.Clone(body.Bytes())})
		}
	}
	check(index.Close())
	check(reader.Close())
}

func dump(dir string) {
	found := read(dir)
	var names []string
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, one := range found[name].samples {
			fmt.Printf("%s\t%d\t%d\t%s\n", name, one.time, one.hint, one.text)
		}
	}
}

// compare panics at the first sample that differs. Chunks need not begin at the same samples, and the first sample of a
// chunk knows nothing of resets; of series whose name begins with narrow_, chunks that begin alike go on alike.
func compare(ours, theirs string, chunksOf func(name string, got, want []chunk) int) {
	a, b := read(ours), read(theirs)
	if len(a) != len(b) {
		panic(fmt.Sprintf("%d series instead of %d", len(a), len(b)))
	}
	sampleCount, chunkCount, sameCount := 0, 0, 0
	for name, want := range b {
		got := a[name]
		if got == nil {
			panic(name + " is missing")
		}
		if len(got.samples) != len(want.samples) {
			panic(fmt.Sprintf("%s: %d samples instead of %d", name, len(got.samples), len(want.samples)))
		}
		starts := map[int64]int{}
		for _, one := range got.chunks {
			starts[one.minTime] |= 1
		}
		for _, one := range want.chunks {
			starts[one.minTime] |= 2
		}
		for at, x := range got.samples {
			y := want.samples[at]
			isSame := x.time == y.time && x.text == y.text
			if kind := starts[x.time]; isSame && (kind == 0 || kind == 3) {
				isSame = x.hint == y.hint
			}
			if !isSame {
				panic(fmt.Sprintf("%s: sample %d\n  %v\ninstead of\n  %v", name, at, x, y))
			}
		}
		sampleCount += len(got.samples)
		chunkCount += len(want.chunks)
		sameCount += chunksOf(name, got.chunks, want.chunks)
	}
	fmt.Printf("%d series, %d samples equal; %d of %d chunks are the same\n", len(b), sampleCount, sameCount, chunkCount)
}

func compareChunks(name string, got, want []chunk) int {
	byStart := map[int64]chunk{}
	for _, one := range got {
		byStart[one.minTime] = one
	}
	sameCount := 0
	for _, one := range want {
		found, isThere := byStart[one.minTime]
		if isThere && bytes.Equal(found.bytes, one.bytes) {
			sameCount++
		} else if isThere && strings.Contains(name, `__name__="narrow_`) && !beginAlike(found.bytes, one.bytes) {
			panic(fmt.Sprintf("%s: chunk from %d:\n  %v\ninstead of\n  %v", name, one.minTime, found, one))
		}
		// What the header says of a reset does not depend on where the chunk ends.
		if isThere && one.encoding != chunkenc.EncXOR && found.bytes[2] != one.bytes[2] {
			panic(fmt.Sprintf("%s: chunk from %d has header %x instead of %x", name, one.minTime, found.bytes[2], one.bytes[2]))
		}
	}
	return sameCount
}

// beginAlike says whether the samples that both chunks have are the same bits; the count in front may differ, and the
// last byte of the shorter one may be filled up.
func beginAlike(a, b []byte) bool {
	shorter := min(len(a), len(b)) - 1
	return bytes.Equal(a[2:shorter], b[2:shorter])
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
