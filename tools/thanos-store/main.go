// Series of a bucket as Thanos's store gateway answers for them, by Thanos's own library (module version v0.42.2).
// Built as Thanos itself is, with the tag slicelabels: go build -tags slicelabels -o PROGRAM .
//
//	thanos-store BUCKET CACHE DELAY
//
// BUCKET is a directory in the layout of Thanos, CACHE an empty one for index headers, DELAY the consistency delay
// (0s: none). Each line of the input has the matchers of one selection, separated by spaces: NAME=VALUE, NAME!=VALUE,
// NAME=~REGEX or NAME!~REGEX. Prints one line per selection, a list of series: labels, and samples of all chunks in
// the order of the answer, as [ms, bits of the float in hexadecimal].
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/filesystem"
	"github.com/thanos-io/thanos/pkg/block"
	"github.com/thanos-io/thanos/pkg/store"
	"github.com/thanos-io/thanos/pkg/store/labelpb"
	"github.com/thanos-io/thanos/pkg/store/storepb"
	"go.uber.org/atomic"
)

const syncConcurrency = 4

type series struct {
	Labels  map[string]string `json:"labels"`
	Samples []sample          `json:"samples"`
}

type sample struct {
	TimeMs int64  `json:"ms"`
	Bits   string `json:"bits"`
}

func main() {
	if len(os.Args) != 4 {
		fatal(fmt.Errorf("usage: thanos-store BUCKET CACHE DELAY"))
	}
	delay, err := time.ParseDuration(os.Args[3])
	fatal(err)
	gateway, err := openStore(context.Background(), os.Args[1], os.Args[2], delay)
	fatal(err)
	defer gateway.Close()
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		matchers, err := parseMatchers(strings.Fields(lines.Text()))
		fatal(err)
		answer, err := selectSeries(context.Background(), gateway, matchers)
		fatal(err)
		fatal(out.Encode(answer))
	}
	fatal(lines.Err())
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func parseMatchers(texts []string) ([]storepb.LabelMatcher, error) {
	kinds := map[string]storepb.LabelMatcher_Type{"=": storepb.LabelMatcher_EQ, "!=": storepb.LabelMatcher_NEQ,
		"=~": storepb.LabelMatcher_RE, "!~": storepb.LabelMatcher_NRE}
	pattern := regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)(.*)$`)
	var matchers []storepb.LabelMatcher
	for _, text := range texts {
		parts := pattern.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("matcher %q: expected NAME=VALUE", text)
		}
		matchers = append(matchers, storepb.LabelMatcher{Type: kinds[parts[2]], Name: parts[1], Value: parts[3]})
	}
	return matchers, nil
}

func openStore(ctx context.Context, directory, cache string, delay time.Duration) (*store.BucketStore, error) {
	logger := log.NewLogfmtLogger(os.Stderr)
	plain, err := filesystem.NewBucket(directory)
	if err != nil {
		return nil, err
	}
	bucket := objstore.WithNoopInstr(plain)
	filters := []block.MetadataFilter{block.NewConsistencyDelayMetaFilterWithoutMetrics(logger, delay)}
	fetcher, err := block.NewMetaFetcher(logger, syncConcurrency, bucket, block.NewConcurrentLister(logger, bucket), cache, nil, filters)
	if err != nil {
		return nil, err
	}
	gateway, err := store.NewBucketStore(bucket, fetcher, cache, store.NewChunksLimiterFactory(0), store.NewSeriesLimiterFactory(0),
		store.NewBytesLimiterFactory(0), store.NewGapBasedPartitioner(store.PartitionerMaxGapSize), syncConcurrency,
		store.DefaultPostingOffsetInMemorySampling, false, false, time.Minute, store.WithLogger(logger))
	if err != nil {
		return nil, err
	}
	return gateway, gateway.InitialSync(ctx)
}

func selectSeries(ctx context.Context, gateway *store.BucketStore, matchers []storepb.LabelMatcher) ([]series, error) {
	request := &storepb.SeriesRequest{MinTime: math.MinInt64, MaxTime: math.MaxInt64, Matchers: matchers,
		Aggregates: []storepb.Aggr{storepb.Aggr_RAW}, PartialResponseStrategy: storepb.PartialResponseStrategy_ABORT}
	client, err := storepb.ServerAsClient(gateway, atomic.Bool{}).Series(ctx, request)
	if err != nil {
		return nil, err
	}
	answer := []series{}
	for {
		response, err := client.Recv()
		if err == io.EOF {
			return answer, nil
		}
		if err != nil {
			return nil, err
		}
		if text := response.GetWarning(); text != "" {
			return nil, fmt.Errorf("warning: %s", text)
		}
		found := response.GetSeries()
		if found == nil {
			continue
		}
		one := series{Labels: labelpb.ZLabelsToPromLabels(found.Labels).Map()}
		for _, chunk := range found.Chunks {
			if one.Samples, err = appendSamples(one.Samples, chunk.Raw); err != nil {
				return nil, err
			}
		}
		answer = append(answer, one)
	}
}

func appendSamples(samples []sample, raw *storepb.Chunk) ([]sample, error) {
	if raw.Type != storepb.Chunk_XOR {
		return nil, fmt.Errorf("chunk encoding %v: expected XOR", raw.Type)
	}
	chunk, err := chunkenc.FromData(chunkenc.EncXOR, raw.Data)
	if err != nil {
		return nil, err
	}
	all := chunk.Iterator(nil)
	for all.Next() == chunkenc.ValFloat {
		ms, value := all.At()
		samples = append(samples, sample{TimeMs: ms, Bits: fmt.Sprintf("%016x", math.Float64bits(value))})
	}
	return samples, all.Err()
}
