// Writes golden results of Prometheus's parsers of exposition formats. Argument: the file, crates/ingest/testdata/exposition.jsonl.
// A line of it has a body, its format and the verdict: an error, or samples and metadata. Bodies come from fixed seeds,
// so that a second run writes the same file; a new version of Prometheus may change verdicts.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

type body struct {
	format string
	bytes  []byte
}

type sample struct {
	Labels    [][2]string `json:"labels"`
	Value     string      `json:"value,omitempty"` // bits of the float
	Histogram string      `json:"histogram,omitempty"`
	Time      *int64      `json:"time,omitempty"`
	Start     int64       `json:"start,omitempty"`
	Exemplars []example   `json:"exemplars,omitempty"`
}

type example struct {
	Labels [][2]string `json:"labels"`
	Value  string      `json:"value"`
	Time   *int64      `json:"time,omitempty"`
}

type result struct {
	Format   string      `json:"format"`
	Text     *string     `json:"text,omitempty"` // the body, if it is UTF-8
	Hex      string      `json:"hex,omitempty"`  // otherwise
	Error    string      `json:"error,omitempty"`
	Samples  []sample    `json:"samples,omitempty"`
	Metadata [][3]string `json:"metadata,omitempty"` // "type", "help" or "unit"; metric; text
}

var mediaTypes = map[string]string{
	"text":        "text/plain",
	"openmetrics": "application/openmetrics-text",
	"protobuf":    "application/vnd.google.protobuf",
}

func main() {
	file, err := os.Create(os.Args[1])
	check(err)
	out := bufio.NewWriter(file)
	encoder := json.NewEncoder(out)
	for _, body := range append(textBodies(), protobufBodies()...) {
		result := result{Format: body.format}
		if text := string(body.bytes); utf8.ValidString(text) && body.format != "protobuf" {
			result.Text = &text
		} else {
			result.Hex = hex.EncodeToString(body.bytes)
		}
		// Start times are asked for in bodies without an error alone: the look-ahead of OpenMetrics never ends at an exemplar that
		// is not valid.
		first := result
		if err := parse(body, &first, false); err != nil {
			result.Error = err.Error()
		} else if err := parse(body, &result, true); err != nil {
			result.Error, result.Samples, result.Metadata = err.Error(), nil, nil
		}
		check(encoder.Encode(result))
	}
	check(out.Flush())
	check(file.Close())
}

// Reads a body as a scrape does: labels are checked, exemplars are taken, and start times are asked for.
func parse(body body, out *result, asksStart bool) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	bytes := append([]byte(nil), body.bytes...)
	parser, err := textparse.New(bytes, mediaTypes[body.format], labels.NewSymbolTable(),
		textparse.ParserOptions{OpenMetricsSkipSTSeries: true})
	if err != nil {
		return err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch entry {
		case textparse.EntryType:
			name, kind := parser.Type()
			out.Metadata = append(out.Metadata, [3]string{"type", string(name), string(kind)})
		case textparse.EntryHelp:
			name, text := parser.Help()
			out.Metadata = append(out.Metadata, [3]string{"help", string(name), string(text)})
		case textparse.EntryUnit:
			name, text := parser.Unit()
			out.Metadata = append(out.Metadata, [3]string{"unit", string(name), string(text)})
		case textparse.EntrySeries, textparse.EntryHistogram:
			sample, err := parseSample(parser, entry, asksStart)
			if err != nil {
				return err
			}
			out.Samples = append(out.Samples, sample)
		}
	}
}

func parseSample(parser textparse.Parser, entry textparse.Entry, asksStart bool) (sample, error) {
	var out sample
	if entry == textparse.EntrySeries {
		_, time, value := parser.Series()
		out.Value, out.Time = bits(value), copied(time)
	} else {
		_, time, histogram, float := parser.Histogram()
		if histogram != nil {
			if err := histogram.Validate(); err != nil {
				return out, err
			}
			float = histogram.ToFloat(nil)
			out.Histogram = "int " + float.String()
		} else {
			if err := float.Validate(); err != nil {
				return out, err
			}
			out.Histogram = "float " + float.String()
		}
		out.Time = copied(time)
	}
	var set labels.Labels
	parser.Labels(&set)
	if !set.Has(labels.MetricName) || set.Get(labels.MetricName) == "" {
		return out, errors.New("metric name is missing")
	}
	if !set.IsValid(model.UTF8Validation) {
		return out, errors.New("invalid metric name or label names")
	}
	if name, repeated := set.HasDuplicateLabelNames(); repeated {
		return out, fmt.Errorf("label name %q is not unique", name)
	}
	out.Labels = pairs(set)
	for {
		var found exemplar.Exemplar
		if !parser.Exemplar(&found) {
			break
		}
		example := example{Labels: pairs(found.Labels), Value: bits(found.Value)}
		if found.HasTs {
			example.Time = &found.Ts
		}
		out.Exemplars = append(out.Exemplars, example)
	}
	if asksStart {
		out.Start = parser.StartTimestamp()
	}
	return out, nil
}

func copied(time *int64) *int64 {
	if time == nil {
		return nil
	}
	ms := *time
	return &ms
}

func pairs(set labels.Labels) [][2]string {
	out := [][2]string{}
	set.Range(func(label labels.Label) {
		if label.Value != "" {
			out = append(out, [2]string{label.Name, label.Value})
		}
	})
	return out
}

func bits(value float64) string {
	return strconv.FormatUint(math.Float64bits(value), 16)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
