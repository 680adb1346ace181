// Writes families.bin; see README.md.
package main

import (
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"os"
)

func spans(v ...int32) (out []*dto.BucketSpan) {
	for i := 0; i < len(v); i += 2 {
		out = append(out, &dto.BucketSpan{Offset: proto.Int32(v[i]), Length: proto.Uint32(uint32(v[i+1]))})
	}
	return
}
func main() {
	label := func(n, v string) *dto.LabelPair { return &dto.LabelPair{Name: &n, Value: &v} }
	t := proto.Int64(1700000000000)
	u := &dto.MetricFamily{Name: proto.String("up"), Type: dto.MetricType_UNTYPED.Enum(), Metric: []*dto.Metric{
		{Label: []*dto.LabelPair{label("job", "a"), label("instance", "")}, Untyped: &dto.Untyped{Value: proto.Float64(0)}, TimestampMs: t},
		{Untyped: &dto.Untyped{Value: proto.Float64(-1.5)}, TimestampMs: proto.Int64(-5)}}}
	h := &dto.MetricFamily{Name: proto.String("h"), Type: dto.MetricType_HISTOGRAM.Enum(), Metric: []*dto.Metric{
		{TimestampMs: t, Histogram: &dto.Histogram{SampleCount: proto.Uint64(21), SampleSum: proto.Float64(18.5), Schema: proto.Int32(-1), ZeroThreshold: proto.Float64(0.25), ZeroCount: proto.Uint64(2),
			NegativeSpan: spans(4, 2), NegativeDelta: []int64{5, 1}, PositiveSpan: spans(-2, 2, 3, 3), PositiveDelta: []int64{1, 2, -2, 1, -1}}},
		{TimestampMs: t, Histogram: &dto.Histogram{SampleCount: proto.Uint64(7), SampleSum: proto.Float64(2.5), Bucket: []*dto.Bucket{
			{CumulativeCount: proto.Uint64(2), UpperBound: proto.Float64(0.5)}, {CumulativeCount: proto.Uint64(2), UpperBound: proto.Float64(1)}, {CumulativeCount: proto.Uint64(6), UpperBound: proto.Float64(2.5)}}}}}}
	g := &dto.MetricFamily{Name: proto.String("g"), Type: dto.MetricType_GAUGE_HISTOGRAM.Enum(), Metric: []*dto.Metric{
		{TimestampMs: t, Histogram: &dto.Histogram{SampleCountFloat: proto.Float64(21), SampleSum: proto.Float64(18.5), Schema: proto.Int32(-1), ZeroThreshold: proto.Float64(0.25), ZeroCountFloat: proto.Float64(2),
			NegativeSpan: spans(4, 2), NegativeCount: []float64{5, 6}, PositiveSpan: spans(-2, 2, 3, 3), PositiveCount: []float64{1, 3, 1, 2, 1}}},
		{TimestampMs: t, Histogram: &dto.Histogram{SampleCountFloat: proto.Float64(7), SampleSum: proto.Float64(2.5), Bucket: []*dto.Bucket{
			{CumulativeCountFloat: proto.Float64(2), UpperBound: proto.Float64(0.5)}, {CumulativeCountFloat: proto.Float64(2), UpperBound: proto.Float64(1)}, {CumulativeCountFloat: proto.Float64(6), UpperBound: proto.Float64(2.5)}}}}}}
	f, _ := os.Create("families.bin")
	for _, m := range []*dto.MetricFamily{u, h, g} {
		n, err := protodelim.MarshalTo(f, m)
		fmt.Println(n, err)
	}
}
