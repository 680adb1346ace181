// Writes the golden file of chronolith-ingest's OTLP translation: requests and the series, samples, exemplars and
// metadata that Prometheus's own translator makes of them.
//
//	go run . > ../../crates/ingest/testdata/otlp/translated.jsonl
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	translator "github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// settings has the keys of Prometheus's `otlp:` block; typeAndUnit is the feature type-and-unit-labels.
type settings struct {
	Strategy            string   `json:"translation_strategy,omitempty"`
	Promote             []string `json:"promote_resource_attributes,omitempty"`
	PromoteAll          bool     `json:"promote_all_resource_attributes,omitempty"`
	Ignore              []string `json:"ignore_resource_attributes,omitempty"`
	KeepIdentifying     bool     `json:"keep_identifying_resource_attributes,omitempty"`
	NHCB                bool     `json:"convert_histograms_to_nhcb,omitempty"`
	Scope               bool     `json:"promote_scope_metadata,omitempty"`
	Underscore          bool     `json:"label_name_underscore_sanitization,omitempty"`
	MultipleUnderscores bool     `json:"label_name_preserve_multiple_underscores,omitempty"`
}

// goldenCase is one line of the file.
type goldenCase struct {
	Name        string   `json:"name"`
	Settings    settings `json:"settings"`
	TypeAndUnit bool     `json:"type_and_unit,omitempty"`
	// Delta is set if all sums and histograms of the request have delta temporality. They are translated as
	// if they were cumulative.
	Delta   bool   `json:"delta,omitempty"`
	Request string `json:"request"`
	JSON    string `json:"json,omitempty"`
	// Error is the error of a request that Prometheus refuses as a whole.
	Error     string   `json:"error,omitempty"`
	Series    []string `json:"series"`
	Samples   []string `json:"samples"`
	Exemplars []string `json:"exemplars,omitempty"`
	Metadata  []string `json:"metadata,omitempty"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for idx, c := range cases() {
		golden, err := translate(c, idx%6 == 0)
		if err == nil {
			err = encoder.Encode(golden)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, c.name, err)
			os.Exit(1)
		}
	}
}

func translate(c testCase, withJSON bool) (goldenCase, error) {
	request := pmetricotlp.NewExportRequestFromMetrics(c.metrics)
	raw, err := request.MarshalProto()
	if err != nil {
		return goldenCase{}, err
	}
	golden := goldenCase{
		Name: c.name, Settings: c.settings, TypeAndUnit: c.typeAndUnit, Delta: c.delta, Request: base64.StdEncoding.EncodeToString(raw),
	}
	// As Prometheus receives it: an empty value and a missing one may differ before.
	received := pmetricotlp.NewExportRequest()
	if err := received.UnmarshalProto(raw); err != nil {
		return goldenCase{}, err
	}
	c.metrics = received.Metrics()
	if withJSON {
		text, err := request.MarshalJSON()
		if err != nil {
			return goldenCase{}, err
		}
		golden.JSON = string(text)
	}
	if c.delta {
		cumulative := pmetric.NewMetrics()
		c.metrics.CopyTo(cumulative)
		setTemporality(cumulative, pmetric.AggregationTemporalityCumulative)
		c.metrics = cumulative
	}
	collected := &collector{series: map[string]bool{}}
	converter := translator.NewPrometheusConverter(collected)
	promoted := config.OTLPConfig{
		PromoteAllResourceAttributes: c.settings.PromoteAll,
		PromoteResourceAttributes:    c.settings.Promote,
		IgnoreResourceAttributes:     c.settings.Ignore,
	}
	_, err = converter.FromMetrics(context.Background(), c.metrics, translator.Settings{
		AddMetricSuffixes:                    strings.HasSuffix(c.settings.Strategy, "WithSuffixes"),
		AllowUTF8:                            strings.HasPrefix(c.settings.Strategy, "No"),
		PromoteResourceAttributes:            translator.NewPromoteResourceAttributes(promoted),
		KeepIdentifyingResourceAttributes:    c.settings.KeepIdentifying,
		ConvertHistogramsToNHCB:              c.settings.NHCB,
		PromoteScopeMetadata:                 c.settings.Scope,
		EnableTypeAndUnitLabels:              c.typeAndUnit,
		LabelNameUnderscoreSanitization:      c.settings.Underscore,
		LabelNamePreserveMultipleUnderscores: c.settings.MultipleUnderscores,
	})
	if err != nil {
		golden.Error = strings.ToValidUTF8(err.Error(), "?")
	}
	for ls := range collected.series {
		golden.Series = append(golden.Series, ls)
	}
	slices.Sort(golden.Series)
	number := func(lines []line) []string {
		var out []string
		for _, l := range lines {
			idx, _ := slices.BinarySearch(golden.Series, l.series)
			out = append(out, fmt.Sprintf("%d %s", idx, l.text))
		}
		slices.Sort(out)
		return out
	}
	slices.Sort(collected.metadata)
	golden.Samples = number(collected.samples)
	golden.Exemplars = number(collected.exemplars)
	golden.Metadata = slices.Compact(collected.metadata)
	return golden, nil
}

// line is a sample or an exemplar of a series.
type line struct{ series, text string }

// collector keeps what the translator appends, as text.
type collector struct {
	series             map[string]bool
	samples, exemplars []line
	metadata           []string
}

func (c *collector) Append(_ storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, _ *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	value := fmt.Sprintf("%016x", math.Float64bits(v))
	if h != nil {
		value = histogramText(h)
		if err := h.Validate(); err != nil && math.Float64bits(h.Sum) != 0x7ff0000000000002 {
			return 0, err
		}
	}
	if ls.Get("__name__") == "" {
		return 0, errors.New("series has no metric name") // as storage does
	}
	if err := ls.Validate(func(l labels.Label) error {
		if !utf8.ValidString(l.Value) {
			return fmt.Errorf("label %s is not valid UTF-8", l.Name)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	series := ls.String()
	c.series[series] = true
	c.samples = append(c.samples, line{series, fmt.Sprintf("%d %d %s", t, st, value)})
	for _, e := range opts.Exemplars {
		time := e.Ts
		if !e.HasTs {
			time = t
		}
		c.exemplars = append(c.exemplars, line{series, fmt.Sprintf("%d %016x %s", time, math.Float64bits(e.Value), e.Labels)})
	}
	m := opts.Metadata
	c.metadata = append(c.metadata, fmt.Sprintf("%s|%s|%s|%s", opts.MetricFamilyName, m.Type, m.Unit, m.Help))
	return 1, nil
}

func (c *collector) Commit() error   { return nil }
func (c *collector) Rollback() error { return nil }

// histogramText has populated buckets only, so that it does not depend on the layout of spans.
func histogramText(h *histogram.Histogram) string {
	if math.Float64bits(h.Sum) == 0x7ff0000000000002 {
		return "stale histogram"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "schema=%d zero=%016x:%d count=%d sum=%016x", h.Schema, math.Float64bits(h.ZeroThreshold), h.ZeroCount, h.Count, math.Float64bits(h.Sum))
	side := func(name string, spans []histogram.Span, deltas []int64) {
		fmt.Fprintf(&b, " %s=[", name)
		idx, count, at := int32(0), int64(0), 0
		for _, span := range spans {
			idx += span.Offset
			for range span.Length {
				count += deltas[at]
				at++
				if count != 0 {
					fmt.Fprintf(&b, "%d:%d ", idx, count)
				}
				idx++
			}
		}
		b.WriteString("]")
	}
	side("positive", h.PositiveSpans, h.PositiveBuckets)
	side("negative", h.NegativeSpans, h.NegativeBuckets)
	b.WriteString(" bounds=[")
	for _, bound := range h.CustomValues {
		fmt.Fprintf(&b, "%016x ", math.Float64bits(bound))
	}
	b.WriteString("]")
	return b.String()
}
