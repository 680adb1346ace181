// Prints the verdict of Prometheus 3.16's package rulefmt about rule files, as `promtool check rules` gives it.
//
//	go run -C tools/peers ../rule-files/main.go FILE.. (see crates/rules/testdata/record-verdicts.py)
//
// A line per file, `NAME: ok RULES` or `NAME: failed`, then its messages, indented.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, file := range os.Args[1:] {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), logger)
		if len(errs) == 0 {
			count := 0
			for _, group := range groups.Groups {
				count += len(group.Rules)
			}
			fmt.Printf("%s: ok %d\n", name, count)
			continue
		}
		fmt.Printf("%s: failed\n", name)
		for _, err := range errs {
			for _, line := range strings.Split(strings.TrimPrefix(err.Error(), file+": "), "\n") {
				fmt.Printf("  %s\n", strings.TrimSpace(line))
			}
		}
	}
}
