package main

import (
	"fmt"
	"math/rand"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// startNs is the time of the first points.
const startNs = 1_700_000_000_123_456_789

type testCase struct {
	name        string
	settings    settings
	typeAndUnit bool
	delta       bool
	metrics     pmetric.Metrics
}

var strategies = []string{
	"UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes", "NoUTF8EscapingWithSuffixes", "NoTranslation",
}

var names = []string{
	"http.server.duration", "a..b", "total", "requests_total", "x.total.y", "ratio", "x.ratio", "1st.metric", "ünïcode.名",
	":colon:x", "a b", "a/b", "foo_seconds_total", "foo.seconds", "日total", "x日_ratio", "system.cpu.utilization", "__x__",
	"a__b", "per_second", "m.bytes_per_second", "total_total", "a_", "_a", "bytes", "x.by", "cpu.percent", "requests.per.second",
}

// badNames are refused by some of the strategies.
var badNames = []string{"", "___", "日", "...", "_", "!"}

var units = []string{
	"", "1", "s", "ms", "By", "By/s", "{request}", "{a}/s", "s/{x}", "%", "m/s", "_d", "1/s", "/s", "KiBy", "foo bar", "a/b/c",
	"Cel", " s ", "__", "per_", "m/_", "%/h", "日", "s/日", "a__b", "_", "/", "//", " / ", "By/mo", "x_/y_", "h/min",
}

var keys = []string{
	"http.method", "http_method", "a.b", "a_b", "a-b", "a__b", "_x", "__x", "__x__", "__a..b__", "__name__", "1a", "job",
	"instance", "le", "quantile", "otel_scope_name", "otel_scope_version", "ünï", "ünx", "trace_id", "__type__", "__unit__",
	"a日", "a", "service.name", "__1__",
}

// badKeys are refused by some of the strategies.
var badKeys = []string{"", "___", "_", "日", "____"}

var resourceKeys = []string{
	"host.name", "host.id", "k8s.pod.uid", "k8s.pod.name", "deployment.environment", "deployment_environment", "_r", "a.b", "job",
	"instance", "1x", "telemetry.sdk.name", "le",
}

var texts = []string{"GET", "", "x;y", "a\"b\\c\nd", "日本", "<&>", "\u2028", "plain", "1", "\t\u0001\u007f"}

func cases() []testCase {
	var out []testCase
	for _, strategy := range strategies {
		for idx, name := range append(append([]string{}, names...), badNames...) {
			out = append(out, testCase{
				name: fmt.Sprintf("name %q", name), settings: settings{Strategy: strategy}, typeAndUnit: idx%2 == 0,
				metrics: ofName(name, units[idx%len(units)]),
			})
		}
		for idx, key := range append(append([]string{}, keys...), badKeys...) {
			bad := idx >= len(keys)
			if bad && key == "" && strategy[0] == 'N' {
				continue // the translator accepts it, the head refuses it
			}
			c := testCase{
				name: fmt.Sprintf("attribute %q", key), metrics: ofKey(key),
				settings: settings{Strategy: strategy, Underscore: idx%2 == 0, MultipleUnderscores: idx%3 == 0},
			}
			out = append(out, c)
		}
	}
	for idx, unit := range units {
		out = append(out, testCase{
			name: fmt.Sprintf("unit %q", unit), metrics: ofName("a.metric", unit), typeAndUnit: true,
			settings: settings{Strategy: strategies[idx%2*2]},
		})
	}
	for seed := range 120 {
		out = append(out, random(int64(seed)))
	}
	return append(out, targets()...)
}

// ofName has a metric of each type with the name.
func ofName(name, unit string) pmetric.Metrics {
	out := pmetric.NewMetrics()
	resource := out.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	metrics := resource.ScopeMetrics().AppendEmpty().Metrics()
	rng := rand.New(rand.NewSource(1))
	for _, kind := range []int{0, 1, 2} {
		metric := metrics.AppendEmpty()
		metric.SetName(name)
		metric.SetUnit(unit)
		fill(metric, kind, rng, func(attributes pcommon.Map) { attributes.PutInt("kind", int64(kind)) })
	}
	return out
}

// ofKey has the key next to two that it may collide with, in points, resource and scope.
func ofKey(key string) pmetric.Metrics {
	out := pmetric.NewMetrics()
	resource := out.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	resource.Resource().Attributes().PutStr(key, "r")
	scope := resource.ScopeMetrics().AppendEmpty()
	scope.Scope().SetName("lib")
	scope.Scope().Attributes().PutStr(key, "s")
	metrics := scope.Metrics()
	for _, kind := range []int{0, 5} {
		metric := metrics.AppendEmpty()
		metric.SetName(fmt.Sprintf("m%d", kind))
		fill(metric, kind, rand.New(rand.NewSource(2)), func(attributes pcommon.Map) {
			attributes.PutStr("a_b", "1")
			attributes.PutStr(key, "2")
			attributes.PutStr("a.b", "3")
		})
	}
	return out
}

// targets vary what decides on target_info.
func targets() []testCase {
	var out []testCase
	sets := []map[string]string{
		{}, {"service.name": "a"}, {"service.name": "a", "host.id": "h"}, {"service.instance.id": "i", "host.id": "h"},
		{"service.namespace": "n", "host.id": "h"}, {"service.namespace": "n", "service.name": "a", "service.instance.id": "i"},
		{"host.id": "h"}, {"job": "j"}, {"instance": "i", "x": "y"}, {"service.name": "", "host.id": "h"},
		{"service.name": "a", "service.namespace": "", "host.id": ""},
	}
	for idx, set := range sets {
		for _, spanNs := range []int64{0, 1, 149_999_999_999, 150_000_000_000, 901_000_000_000} {
			metrics := pmetric.NewMetrics()
			for range 2 {
				resource := metrics.ResourceMetrics().AppendEmpty()
				for key, value := range set {
					resource.Resource().Attributes().PutStr(key, value)
				}
				points := resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
				points.SetName("up")
				gauge := points.SetEmptyGauge()
				for at := range 2 {
					point := gauge.DataPoints().AppendEmpty()
					point.SetIntValue(int64(at))
					point.SetTimestamp(pcommon.Timestamp(startNs + int64(at)*spanNs))
				}
			}
			strategy := strategies[idx%4]
			c := testCase{name: fmt.Sprintf("target %d over %d ns", idx, spanNs), metrics: metrics}
			c.settings = settings{Strategy: strategy, KeepIdentifying: spanNs%2 == 1, PromoteAll: idx%3 == 1}
			out = append(out, c)
		}
	}
	return out
}

func random(seed int64) testCase {
	rng := rand.New(rand.NewSource(seed))
	c := testCase{name: fmt.Sprintf("random %d", seed), typeAndUnit: rng.Intn(4) == 0, delta: rng.Intn(6) == 0}
	c.settings = settings{
		Strategy: strategies[rng.Intn(4)], KeepIdentifying: rng.Intn(3) == 0, NHCB: rng.Intn(2) == 0, Scope: rng.Intn(2) == 0,
		Underscore: rng.Intn(2) == 0, MultipleUnderscores: rng.Intn(3) == 0,
	}
	switch rng.Intn(3) {
	case 0:
		c.settings.Promote = []string{"host.name", "deployment.environment", "deployment_environment", "a.b", "job"}
	case 1:
		c.settings.PromoteAll = true
		c.settings.Ignore = []string{"host.id", "service.name"}
	}
	c.metrics = pmetric.NewMetrics()
	for range 1 + rng.Intn(2) {
		resource := c.metrics.ResourceMetrics().AppendEmpty()
		attributes := resource.Resource().Attributes()
		for _, key := range []string{"service.name", "service.namespace", "service.instance.id"} {
			if rng.Intn(3) > 0 {
				attributes.PutStr(key, fmt.Sprintf("v%d", rng.Intn(3)))
			}
		}
		for range rng.Intn(5) {
			setValue(attributes.PutEmpty(resourceKeys[rng.Intn(len(resourceKeys))]), rng, 0)
		}
		for range 1 + rng.Intn(2) {
			scope := resource.ScopeMetrics().AppendEmpty()
			if rng.Intn(3) > 0 {
				scope.Scope().SetName("library")
				scope.SetSchemaUrl([]string{"", "https://schema"}[rng.Intn(2)])
				scope.Scope().SetVersion([]string{"", "1.2"}[rng.Intn(2)])
				for range rng.Intn(3) {
					setValue(scope.Scope().Attributes().PutEmpty(keys[rng.Intn(len(keys))]), rng, 0)
				}
			}
			for range 1 + rng.Intn(2) {
				metric := scope.Metrics().AppendEmpty()
				metric.SetName(fmt.Sprintf("%s%d", names[rng.Intn(len(names))], rng.Intn(100)))
				metric.SetDescription(texts[rng.Intn(len(texts))])
				metric.SetUnit(units[rng.Intn(len(units))])
				fill(metric, rng.Intn(6), rng, func(attributes pcommon.Map) {
					for range rng.Intn(4) {
						setValue(attributes.PutEmpty(keys[rng.Intn(len(keys))]), rng, 0)
					}
				})
			}
		}
	}
	if c.delta {
		setTemporality(c.metrics, pmetric.AggregationTemporalityDelta)
	}
	return c
}

func setTemporality(metrics pmetric.Metrics, temporality pmetric.AggregationTemporality) {
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				switch metric.Type() {
				case pmetric.MetricTypeSum:
					metric.Sum().SetAggregationTemporality(temporality)
				case pmetric.MetricTypeHistogram:
					metric.Histogram().SetAggregationTemporality(temporality)
				case pmetric.MetricTypeExponentialHistogram:
					metric.ExponentialHistogram().SetAggregationTemporality(temporality)
				}
			}
		}
	}
}

func setValue(value pcommon.Value, rng *rand.Rand, depth int) {
	floats := []float64{0, 1.5, -2, 1e21, 1e-7, 123456789, 0.1, 1e20, 1e300, -1e-9}
	switch kind := rng.Intn(10); {
	case kind < 4:
		value.SetStr(texts[rng.Intn(len(texts))])
	case kind == 4:
		value.SetInt(rng.Int63() - rng.Int63())
	case kind == 5:
		value.SetDouble(floats[rng.Intn(len(floats))])
	case kind == 6:
		value.SetBool(rng.Intn(2) == 0)
	case kind == 7:
		value.SetEmptyBytes().Append([]byte("bytes\x00\xff")[:rng.Intn(7)]...)
	case kind == 8 && depth < 3:
		for range rng.Intn(3) {
			setValue(value.SetEmptySlice().AppendEmpty(), rng, depth+1)
		}
	case kind == 9 && depth < 3:
		nested := value.SetEmptyMap()
		for range rng.Intn(3) {
			setValue(nested.PutEmpty(keys[rng.Intn(len(keys))]), rng, depth+1)
		}
	}
}
