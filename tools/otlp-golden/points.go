package main

import (
	"math"
	"math/rand"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// fill gives the metric points of a kind: gauge, sum, monotonic sum, histogram, exponential histogram, summary.
func fill(metric pmetric.Metric, kind int, rng *rand.Rand, attributes func(pcommon.Map)) {
	count := 1 + rng.Intn(3)/2
	switch kind {
	case 0:
		points := metric.SetEmptyGauge().DataPoints()
		for range count {
			number(points.AppendEmpty(), rng, attributes)
		}
	case 1, 2:
		sum := metric.SetEmptySum()
		sum.SetIsMonotonic(kind == 2)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range count {
			point := sum.DataPoints().AppendEmpty()
			number(point, rng, attributes)
			exemplars(point.Exemplars(), rng)
		}
	case 3:
		out := metric.SetEmptyHistogram()
		out.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range count {
			explicit(out.DataPoints().AppendEmpty(), rng, attributes)
		}
	case 4:
		out := metric.SetEmptyExponentialHistogram()
		out.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range count {
			exponential(out.DataPoints().AppendEmpty(), rng, attributes)
		}
	case 5:
		points := metric.SetEmptySummary().DataPoints()
		for range count {
			summary(points.AppendEmpty(), rng, attributes)
		}
	}
}

// times gives a time, and sometimes a start time.
func times(rng *rand.Rand) (pcommon.Timestamp, pcommon.Timestamp) {
	start := pcommon.Timestamp(0)
	if rng.Intn(2) == 0 {
		start = pcommon.Timestamp(startNs - rng.Int63n(1_000_000_000_000))
	}
	return pcommon.Timestamp(startNs + rng.Int63n(400)*1_000_000_000 + rng.Int63n(1_000_000_000)), start
}

func flags(rng *rand.Rand) pmetric.DataPointFlags {
	return pmetric.DefaultDataPointFlags.WithNoRecordedValue(rng.Intn(8) == 0)
}

func number(point pmetric.NumberDataPoint, rng *rand.Rand, attributes func(pcommon.Map)) {
	time, start := times(rng)
	point.SetTimestamp(time)
	point.SetStartTimestamp(start)
	point.SetFlags(flags(rng))
	if rng.Intn(2) == 0 {
		point.SetIntValue(rng.Int63n(1<<60) - 1<<59)
	} else {
		point.SetDoubleValue([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), rng.NormFloat64()}[rng.Intn(6)])
	}
	attributes(point.Attributes())
}

func exemplars(out pmetric.ExemplarSlice, rng *rand.Rand) {
	for range rng.Intn(4) {
		exemplar := out.AppendEmpty()
		if rng.Intn(4) > 0 {
			exemplar.SetTimestamp(pcommon.Timestamp(startNs + rng.Int63n(10_000_000_000)))
		}
		if rng.Intn(2) == 0 {
			exemplar.SetIntValue(rng.Int63n(20))
		} else {
			exemplar.SetDoubleValue(rng.ExpFloat64() * 5)
		}
		if rng.Intn(2) == 0 {
			exemplar.SetTraceID(pcommon.TraceID{1, 0xab, byte(rng.Intn(256))})
		}
		if rng.Intn(2) == 0 {
			exemplar.SetSpanID(pcommon.SpanID{0xcd, byte(rng.Intn(256))})
		}
		attributes := exemplar.FilteredAttributes()
		for range rng.Intn(3) {
			key := []string{"user.id", "trace_id", "span_id", "日", "a b"}[rng.Intn(5)]
			attributes.PutStr(key, []string{"x", "日本", "0123456789012345678901234567890123456789"}[rng.Intn(3)])
		}
	}
}

func explicit(point pmetric.HistogramDataPoint, rng *rand.Rand, attributes func(pcommon.Map)) {
	time, start := times(rng)
	point.SetTimestamp(time)
	point.SetStartTimestamp(start)
	point.SetFlags(flags(rng))
	attributes(point.Attributes())
	bounds := []float64{-1.5, 0, 0.005, 1, 2.5, 10, 1e6, 1e21, 1e-9}[:rng.Intn(5)]
	count := uint64(0)
	if len(bounds) > 0 || rng.Intn(2) == 0 {
		for range len(bounds) + 1 {
			bucket := uint64(rng.Intn(4) / 2 * rng.Intn(1000))
			count += bucket
			point.BucketCounts().Append(bucket)
		}
	} else {
		count = uint64(rng.Intn(5))
	}
	point.ExplicitBounds().FromRaw(bounds)
	point.SetCount(count)
	if count > 0 && len(bounds) == 0 && point.BucketCounts().Len() == 0 {
		point.BucketCounts().Append(count)
	}
	if rng.Intn(3) > 0 {
		point.SetSum(rng.NormFloat64() * float64(count))
	}
	exemplars(point.Exemplars(), rng)
}

func exponential(point pmetric.ExponentialHistogramDataPoint, rng *rand.Rand, attributes func(pcommon.Map)) {
	time, start := times(rng)
	point.SetTimestamp(time)
	point.SetStartTimestamp(start)
	point.SetFlags(flags(rng))
	attributes(point.Attributes())
	point.SetScale(int32(rng.Intn(17) - 4))
	point.SetZeroCount(uint64(rng.Intn(3)))
	count := point.ZeroCount()
	for _, side := range []pmetric.ExponentialHistogramDataPointBuckets{point.Positive(), point.Negative()} {
		side.SetOffset(int32(rng.Intn(60) - 30))
		for range rng.Intn(12) {
			bucket := uint64(rng.Intn(4) / 2 * rng.Intn(100))
			count += bucket
			side.BucketCounts().Append(bucket)
		}
	}
	point.SetCount(count)
	if rng.Intn(3) > 0 {
		point.SetSum(rng.NormFloat64() * float64(count))
	}
	exemplars(point.Exemplars(), rng)
}

func summary(point pmetric.SummaryDataPoint, rng *rand.Rand, attributes func(pcommon.Map)) {
	time, start := times(rng)
	point.SetTimestamp(time)
	point.SetStartTimestamp(start)
	point.SetFlags(flags(rng))
	attributes(point.Attributes())
	point.SetCount(uint64(rng.Int63n(1 << 60)))
	point.SetSum(rng.NormFloat64())
	for _, quantile := range []float64{0, 0.5, 0.99, 1}[:rng.Intn(5)] {
		value := point.QuantileValues().AppendEmpty()
		value.SetQuantile(quantile)
		value.SetValue(rng.NormFloat64())
	}
}
