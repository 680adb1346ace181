// Program parse asks Prometheus's parser for its verdict on queries, as a black box.
//
// It reads one JSON object per line, {"query": "...", "experimental": true}, and prints one per line:
// {"query", "experimental", "ok", "error", "printed", "type"}. "experimental" switches the
// functions, range selectors and fill modifiers behind feature flags, all at once. Its own output
// is valid input: `go run . < corpus.jsonl` asks again.
// Not here: evaluation, and any judgement of the answer.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

type question struct {
	Query        string `json:"query"`
	Experimental bool   `json:"experimental"`
}

type answer struct {
	question
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
	Printed string `json:"printed,omitempty"`
	Type    string `json:"type,omitempty"`
}

func ask(off, on parser.Parser, q question) answer {
	p := off
	if q.Experimental {
		p = on
	}
	a := answer{question: q}
	expr, err := p.ParseExpr(q.Query)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.OK = true
	a.Printed = expr.String()
	a.Type = string(expr.Type())
	return a
}

func run() error {
	off := parser.NewParser(parser.Options{})
	on := parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true,
		EnableBinopFillModifiers:    true,
	})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return fmt.Errorf("line %q: %w", in.Text(), err)
		}
		if err := out.Encode(ask(off, on, q)); err != nil {
			return err
		}
	}
	return in.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "parse:", err)
		os.Exit(1)
	}
}
