// Go's math.Exp2 and math.Log2 for arguments that quantiles of native histograms have.
// go run tools/go-math-golden/main.go > crates/exec/src/histogram/go_math.golden
package main

import (
	"fmt"
	"math"
	"math/rand"
)

func main() {
	source := rand.New(rand.NewSource(1))
	print := func(name string, x, y float64) {
		fmt.Printf("%s %016x %016x\n", name, math.Float64bits(x), math.Float64bits(y))
	}
	exp2 := func(x float64) { print("exp2", x, math.Exp2(x)) }
	log2 := func(x float64) { print("log2", x, math.Log2(x)) }
	edges := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 1023, 1023.9999999999999, 1024, -1022, -1022.5, -1074, -1075, 1e300, -1e300, math.Inf(1), math.Inf(-1)}
	for _, x := range edges {
		exp2(x)
	}
	for i := 0; i < 300; i++ {
		exp2((source.Float64() - 0.5) * math.Pow(10, float64(i%4)))
	}
	for _, x := range []float64{1, 2, 0.5, 3, 1e-320, math.MaxFloat64, 5e-324, math.Inf(1), 0} {
		log2(x)
	}
	for schema := 0; schema <= 8; schema++ {
		for i := 0; i < 15; i++ {
			idx := source.Intn(64<<schema) - 32<<schema
			log2(math.Ldexp(math.Pow(2, float64(idx)/float64(int(1)<<schema)), 0))
		}
	}
	for i := 0; i < 200; i++ {
		log2(math.Exp((source.Float64() - 0.5) * 40))
	}
}
