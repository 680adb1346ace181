// Writes golden files of Prometheus 3.16: relabelling, and requests to Alertmanagers.
//
//	go run . relabel > ../../crates/model/src/relabel/golden.jsonl
//	go run . bodies > ../../crates/rules/src/notifier/golden.jsonl
//	go run . verdicts CASES > ../../crates/rules/src/notifier/config/verdicts.txt
//
// The program is run by hand; tests read what it has written.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v2"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/notifier"

	_ "github.com/prometheus/prometheus/discovery/file"
)

func main() {
	switch os.Args[1] {
	case "relabel":
		write(relabelCases())
	case "bodies":
		write(bodies())
	case "verdicts":
		verdicts(os.Args[2])
	}
}

// write prints a line of JSON for each case.
func write[T any](cases []T) {
	for _, one := range cases {
		check(json.NewEncoder(os.Stdout).Encode(one))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type relabelCase struct {
	Rules  json.RawMessage   `json:"rules"`
	Labels map[string]string `json:"labels"`
	// Null for label sets that are dropped and for rules that are refused.
	Result map[string]string `json:"result"`
	Error  string            `json:"error,omitempty"`
}

// JSON is YAML, so the rules are read as Prometheus reads them.
func relabelCases() []relabelCase {
	var cases []relabelCase
	for _, rules := range rulesOfCases {
		for _, set := range labelsOfCases {
			one := relabelCase{Rules: json.RawMessage("[" + rules + "]"), Labels: set}
			parsed, err := parseRules("[" + rules + "]")
			if err != nil {
				one.Error = err.Error()
				one.Labels = map[string]string{}
				cases = append(cases, one)
				break
			}
			builder := labels.NewBuilder(labels.FromMap(set))
			if relabel.ProcessBuilder(builder, parsed...) {
				one.Result = builder.Labels().Map()
			}
			cases = append(cases, one)
		}
	}
	return cases
}

func parseRules(text string) ([]*relabel.Config, error) {
	var rules []*relabel.Config
	if err := yaml.UnmarshalStrict([]byte(text), &rules); err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if err := rule.Validate(model.UTF8Validation); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

var labelsOfCases = []map[string]string{
	{"a": "foo", "b": "bar", "c": "baz"},
	{"__name__": "up", "instance": "Host-1.example.com:9100", "job": "node", "env": ""},
	{"__meta_region": "EU", "__meta_zone": "eu\n1", "a": "ß İ ŉ ᾳ Σας", "é": "ü"},
	{},
}

var rulesOfCases = []string{
	`{}`,
	`{"source_labels": ["a"], "target_label": "d"}`,
	`{"source_labels": ["a"], "regex": "f(.*)", "target_label": "d", "replacement": "ch${1}-ch${1}"}`,
	`{"source_labels": ["a", "b"], "regex": "f(.*);(.*)r", "target_label": "a", "replacement": "b${1}${2}m"}`,
	`{"source_labels": ["a", "b"], "separator": "::", "regex": "(?P<first>.*)::(.*)", "target_label": "d", "replacement": "$first"}`,
	`{"source_labels": ["a"], "separator": "", "regex": "", "target_label": "d", "replacement": "x"}`,
	`{"source_labels": ["zzz"], "target_label": "d", "replacement": "fixed"}`,
	`{"target_label": "d", "replacement": "fixed"}`,
	`{"target_label": "a", "replacement": ""}`,
	`{"source_labels": ["a"], "regex": "nothing", "target_label": "a", "replacement": ""}`,
	`{"source_labels": ["a"], "regex": "(.*)", "target_label": "${1}_x", "replacement": "y"}`,
	`{"source_labels": ["a"], "regex": "(f).*", "target_label": "$2", "replacement": "y"}`,
	`{"source_labels": ["instance"], "regex": "([^:]+):\\d+", "target_label": "host", "replacement": "$1"}`,
	`{"source_labels": ["instance"], "regex": "([^:]+)", "target_label": "host", "replacement": "$1"}`,
	`{"source_labels": ["__meta_zone"], "regex": "eu.1", "target_label": "zone", "replacement": "one"}`,
	`{"source_labels": ["a"], "regex": "f.o", "action": "keep"}`,
	`{"source_labels": ["a"], "regex": "f.o", "action": "DROP"}`,
	`{"source_labels": ["a"], "regex": "", "action": "drop"}`,
	`{"regex": "", "action": "keep"}`,
	`{"action": "keep"}`,
	`{"regex": "(.*)", "action": "labelmap", "replacement": "x_$1"}`,
	`{"regex": "__meta_(.+)", "action": "labelmap"}`,
	`{"regex": "(a|b)", "action": "labelmap", "replacement": "same"}`,
	`{"regex": "a", "action": "labelmap", "replacement": "b"}`,
	`{"regex": "__meta_.*", "action": "labeldrop"}`,
	`{"regex": "a|b|__name__", "action": "labelkeep"}`,
	`{"source_labels": ["a", "b"], "target_label": "shard", "modulus": 1000, "action": "hashmod"}`,
	`{"source_labels": ["a"], "target_label": "shard", "modulus": 18446744073709551615, "action": "hashmod"}`,
	`{"target_label": "shard", "modulus": 7, "action": "hashmod"}`,
	`{"source_labels": ["a"], "target_label": "a", "action": "lowercase"}`,
	`{"source_labels": ["a", "é"], "target_label": "up", "action": "uppercase"}`,
	`{"source_labels": ["instance"], "target_label": "instance", "action": "lowercase"}`,
	`{"source_labels": ["a"], "target_label": "b", "action": "keepequal"}`,
	`{"source_labels": ["a"], "target_label": "b", "action": "dropequal"}`,
	`{"source_labels": ["a"], "target_label": "b"}, {"source_labels": ["a"], "target_label": "b", "action": "keepequal"}`,
	`{"source_labels": ["a"], "target_label": "b"}, {"regex": "a", "action": "labeldrop"}, {"source_labels": ["b"], "regex": "foo", "action": "drop"}`,
	`{"source_labels": ["a"], "target_label": "name with spaces"}`,
	`{"source_labels": ["a"], "target_label": "__tmp", "replacement": "$$1"}`,
	`{"source_labels": ["a"], "target_label": "d", "replacement": "${undefined}$0"}`,
	`{"source_labels": ["a"], "target_label": "d", "replacement": "$1x"}`,
	`{"source_labels": [], "action": "labeldrop", "regex": "a"}`,
	// Refused.
	`{"action": "replace"}`,
	`{"action": ""}`,
	`{"action": "nonsense"}`,
	`{"target_label": "a", "action": "hashmod"}`,
	`{"modulus": 5, "action": "hashmod"}`,
	`{"action": "lowercase"}`,
	`{"target_label": "a", "action": "uppercase", "replacement": "x"}`,
	`{"target_label": "a", "action": "keepequal", "regex": "x"}`,
	`{"target_label": "a", "action": "keepequal", "regex": "(.*)"}`,
	`{"target_label": "a", "action": "dropequal", "separator": "x"}`,
	`{"target_label": "a", "action": "dropequal", "modulus": 1}`,
	`{"action": "dropequal"}`,
	`{"action": "labeldrop", "source_labels": ["a"], "regex": "a"}`,
	`{"action": "labelkeep", "target_label": "a", "regex": "a"}`,
	`{"action": "labelkeep", "replacement": "a", "regex": "a"}`,
	`{"action": "labelmap", "replacement": ""}`,
	`{"target_label": "a", "regex": "("}`,
	`{"target_label": "a", "source_labels": [""]}`,
	`{"target_label": "a", "replacement": "x", "modulus": -1}`,
}

type bodyCase struct {
	Alerts []*notifier.Alert `json:"alerts"`
	Body   string            `json:"body"`
}

// bodies sends each list of alerts to a server and records the body of the request.
func bodies() []bodyCase {
	var received []byte
	got := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received, _ = io.ReadAll(r.Body)
		got <- struct{}{}
	}))
	defer server.Close()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	manager := notifier.NewManager(&notifier.Options{QueueCapacity: 100}, model.UTF8Validation, logger)
	address := strings.TrimPrefix(server.URL, "http://")
	text := "alerting: {alertmanagers: [{static_configs: [{targets: ['" + address + "']}]}]}"
	loaded, err := config.Load(text, logger)
	check(err)
	check(manager.ApplyConfig(loaded))
	targets := make(chan map[string][]*targetgroup.Group)
	go manager.Run(targets)
	group := &targetgroup.Group{Targets: []model.LabelSet{{"__address__": model.LabelValue(address)}}}
	targets <- map[string][]*targetgroup.Group{"config-0": {group}}
	for len(manager.Alertmanagers()) == 0 {
		time.Sleep(time.Millisecond)
	}
	var cases []bodyCase
	for _, alerts := range alertsOfCases() {
		manager.Send(alerts...)
		<-got
		cases = append(cases, bodyCase{Alerts: alerts, Body: string(received)})
	}
	manager.Stop()
	return cases
}

func alertsOfCases() [][]*notifier.Alert {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	one := func(set, annotations map[string]string, start, end int64, generator string) *notifier.Alert {
		return &notifier.Alert{
			Labels:       labels.FromMap(set),
			Annotations:  labels.FromMap(annotations),
			StartsAt:     at(start),
			EndsAt:       at(end),
			GeneratorURL: generator,
		}
	}
	plain := map[string]string{"alertname": "Down", "instance": "a:9100", "severity": "page"}
	special := map[string]string{
		"alertname":  "<b>&\"\\/'",
		"control":    "\u0001\b\f\n\r\t\u001f\u007f",
		"unicode":    "é \u2028\u2029 😀 \ufeff",
		"é":          "ü",
		"with space": "1",
	}
	first := one(plain, map[string]string{"summary": "a is down"}, 1764408600000, 1764408840000, "http://p:9090/graph?g0.expr=up+%3D%3D+0&g0.tab=1")
	bare := one(map[string]string{"alertname": "x"}, nil, 1764408600123, 1764408840999, "")
	return [][]*notifier.Alert{
		{first},
		{bare},
		{one(special, special, 1, 1000, "http://h/?a=<b>&c=\"")},
		{first, bare, first},
		{one(plain, nil, -62135596800000, 253402300799999, "")},
		{one(nil, map[string]string{"only": "annotations"}, 951782400000, 1709164799001, "x")},
	}
}

// verdicts prints a line for each case of a file: its name, and "ok" or Prometheus's error.
func verdicts(path string) {
	content, err := os.ReadFile(path)
	check(err)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, one := range strings.Split(string(content), "=== ")[1:] {
		name, text, _ := strings.Cut(one, "\n")
		name, _, _ = strings.Cut(name, " |")
		verdict := "ok"
		if _, err := config.Load(text, logger); err != nil {
			verdict = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s: %s\n", name, verdict)
	}
}
