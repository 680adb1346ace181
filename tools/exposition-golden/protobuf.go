package main

import (
	"bytes"
	"math"
	"math/rand"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func protobufBodies() []body {
	random := rand.New(rand.NewSource(3))
	var out []body
	for i := range wholeCount + mutatedCount {
		var encoded bytes.Buffer
		for range 1 + random.Intn(2) {
			family := randomFamily(random)
			options := protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true, AllowPartial: true}}
			_, err := options.MarshalTo(&encoded, family)
			check(err)
		}
		bytes := encoded.Bytes()
		if i >= wholeCount {
			bytes = mutatedBytes(random, bytes)
		}
		out = append(out, body{"protobuf", bytes})
	}
	return out
}

func mutatedBytes(random *rand.Rand, text []byte) []byte {
	at := random.Intn(len(text))
	switch random.Intn(3) {
	case 0:
		return text[:at]
	case 1:
		text[at] ^= 1 << random.Intn(8)
	default:
		text[at] = byte(random.Intn(256))
	}
	return text
}

func text(random *rand.Rand) string {
	return pick(random, []string{"a", "b", "le", "é", "x y", "", "\xff", "quantile"})
}

func number(random *rand.Rand) float64 {
	return pick(random, []float64{0, 1, 17.5, -2, math.Inf(1), math.NaN(), 1e9})
}

func randomLabels(random *rand.Rand) []*dto.LabelPair {
	var out []*dto.LabelPair
	for range random.Intn(3) {
		name, value := text(random), text(random)
		if random.Intn(8) != 0 {
			name, value = pick(random, []string{"a", "b_c", "d e"}), pick(random, []string{"x", "é", ""})
		}
		out = append(out, &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)})
	}
	return out
}

func time(random *rand.Rand) *timestamppb.Timestamp {
	if random.Intn(2) == 0 {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: int64(random.Intn(2_000_000_000)), Nanos: int32(random.Intn(1_000_000_000))}
}

func randomExemplar(random *rand.Rand) *dto.Exemplar {
	if random.Intn(2) == 0 {
		return nil
	}
	return &dto.Exemplar{Label: []*dto.LabelPair{{Name: proto.String("t"), Value: proto.String("u")}},
		Value: proto.Float64(number(random)), Timestamp: time(random)}
}

func randomFamily(random *rand.Rand) *dto.MetricFamily {
	kind := pick(random, []dto.MetricType{dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_SUMMARY, dto.MetricType_UNTYPED,
		dto.MetricType_HISTOGRAM, dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM})
	out := &dto.MetricFamily{Name: proto.String(pick(random, []string{"m", "a.b", "m_total"})), Type: &kind}
	if random.Intn(2) == 0 {
		out.Help, out.Unit = proto.String(pick(random, []string{"text", "é\n\\"})), proto.String(pick(random, []string{"", "seconds"}))
	}
	for range random.Intn(4) {
		out.Metric = append(out.Metric, randomMetric(random, kind))
	}
	return out
}

func randomMetric(random *rand.Rand, kind dto.MetricType) *dto.Metric {
	metric := &dto.Metric{Label: randomLabels(random)}
	if random.Intn(3) == 0 {
		metric.TimestampMs = proto.Int64(pick(random, []int64{0, -5, 1520879607789}))
	}
	switch kind {
	case dto.MetricType_COUNTER:
		metric.Counter = &dto.Counter{Value: proto.Float64(number(random)), Exemplar: randomExemplar(random), CreatedTimestamp: time(random)}
	case dto.MetricType_GAUGE:
		metric.Gauge = &dto.Gauge{Value: proto.Float64(number(random))}
	case dto.MetricType_UNTYPED:
		metric.Untyped = &dto.Untyped{Value: proto.Float64(number(random))}
	case dto.MetricType_SUMMARY:
		metric.Summary = &dto.Summary{SampleCount: proto.Uint64(uint64(random.Intn(5))), SampleSum: proto.Float64(number(random)), CreatedTimestamp: time(random)}
		for range random.Intn(3) {
			metric.Summary.Quantile = append(metric.Summary.Quantile,
				&dto.Quantile{Quantile: proto.Float64(pick(random, []float64{0, 0.5, 0.99, 1})), Value: proto.Float64(number(random))})
		}
	default:
		metric.Histogram = randomHistogram(random)
	}
	return metric
}

func randomHistogram(random *rand.Rand) *dto.Histogram {
	out := &dto.Histogram{SampleSum: proto.Float64(number(random)), CreatedTimestamp: time(random)}
	isFloat := random.Intn(3) == 0
	total := uint64(0)
	if random.Intn(2) == 0 {
		for _, bound := range []float64{0.5, 1, 1e6, math.Inf(1)}[:random.Intn(5)] {
			total += uint64(random.Intn(3))
			bucket := &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(total), Exemplar: randomExemplar(random)}
			if isFloat {
				bucket.CumulativeCountFloat = proto.Float64(float64(total) + 0.5)
			}
			out.Bucket = append(out.Bucket, bucket)
		}
	}
	if random.Intn(2) == 0 {
		total = native(random, out, isFloat)
	}
	if isFloat {
		out.SampleCountFloat = proto.Float64(float64(total))
	} else {
		out.SampleCount = proto.Uint64(total)
	}
	return out
}

// Adds buckets of a native histogram. Returns the count of observations.
func native(random *rand.Rand, out *dto.Histogram, isFloat bool) uint64 {
	total := uint64(random.Intn(3))
	out.Schema = proto.Int32(pick(random, []int32{-4, 0, 3, 8, 9, 53}))
	out.ZeroThreshold = proto.Float64(pick(random, []float64{0, 0.001}))
	if isFloat {
		out.ZeroCountFloat = proto.Float64(float64(total))
	} else {
		out.ZeroCount = proto.Uint64(total)
	}
	last := int64(0)
	length := random.Intn(4)
	out.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(int32(random.Intn(5) - 2)), Length: proto.Uint32(uint32(length))}}
	for range length {
		count := int64(random.Intn(3))
		total += uint64(count)
		if isFloat {
			out.PositiveCount = append(out.PositiveCount, float64(count))
		} else {
			out.PositiveDelta = append(out.PositiveDelta, count-last)
		}
		last = count
	}
	for range random.Intn(3) {
		out.Exemplars = append(out.Exemplars, &dto.Exemplar{Value: proto.Float64(1), Timestamp: time(random)})
	}
	return total
}
