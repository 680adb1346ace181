// Writes the golden XOR2 chunks of crates/format/testdata/xor2 with Prometheus's own library: for each case NAME.chunk
// (the chunk's bytes) and NAME.txt (a line "time bits" for each sample, bits in hexadecimal). Argument: directory.
package main

import (
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

type sample struct {
	st, t int64
	v     float64
}

func main() {
	r := rand.New(rand.NewSource(7))
	stale := math.Float64frombits(value.StaleNaN)
	const start, step = int64(1700000000000), int64(15000)
	cases := map[string]func(i int) sample{
		"steady": func(i int) sample { return sample{0, start + int64(i)*step, 42} },
		"jitter": func(i int) sample {
			return sample{0, start + int64(i)*step + r.Int63n(2000), float64(r.Intn(1000)) / 100}
		},
		"gaps": func(i int) sample { return sample{0, start + int64(i)*step + int64(i/10)*int64(i)*70000, float64(i)} },
		"leaps": func(i int) sample { return sample{0, -start + int64(i)*int64(i)*int64(i)*77777777, r.NormFloat64()} },
		"stale": func(i int) sample {
			v := float64(i / 3)
			if i%5 == 0 || i == 1 {
				v = stale
			}
			return sample{0, start + int64(i)*step + int64(i%4), v}
		},
		"bits": func(i int) sample { return sample{0, start + int64(i)*step, math.Float64frombits(r.Uint64())} },
		"start-known": func(i int) sample { return sample{start - 5000, start + int64(i)*step, float64(i * i)} },
		"start-changes": func(i int) sample {
			return sample{start + int64(i)*step - 1 - r.Int63n(1<<uint(i%30)), start + int64(i)*step, float64(i % 7)}
		},
		"start-late": func(i int) sample {
			st := int64(0)
			if i > 60 {
				st = start + int64(i/20)*1000
			}
			return sample{st, start + int64(i)*step + int64(i%3), float64(i)}
		},
		"start-second": func(i int) sample { return sample{int64(i) * 1000, start + int64(i)*step, 1} },
	}
	for name, at := range cases {
		n := 130
		if name == "steady" {
			n = 1
		}
		if name == "gaps" {
			n = 2
		}
		write(name, at, n)
		write(name+"-long", at, 300)
	}
}

func write(name string, at func(i int) sample, n int) {
	chunk := chunkenc.NewXOR2Chunk()
	app, err := chunk.Appender()
	check(err)
	var text strings.Builder
	for i := range n {
		s := at(i)
		app.Append(s.st, s.t, s.v)
		fmt.Fprintf(&text, "%d %016x\n", s.t, math.Float64bits(s.v))
	}
	check(os.WriteFile(filepath.Join(os.Args[1], name+".chunk"), chunk.Bytes(), 0o644))
	check(os.WriteFile(filepath.Join(os.Args[1], name+".txt"), []byte(text.String()), 0o644))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
