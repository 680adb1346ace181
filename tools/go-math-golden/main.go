// Writes the results of Go's package math that crates/model/src/go_math is compared with. Run it by hand, on
// linux/amd64 with a processor that has FMA, after adding inputs:
//
//	go run tools/go-math-golden/main.go > crates/model/testdata/go-math.golden
//	go run tools/go-math-golden/main.go exp any:-30:10 7
//
// Bits of an input and of its result are a line "= exp INPUT RESULT". Most inputs are drawn by splitMix64, and
// their results are hashed, 128 per line: "# exp INPUTS BLOCK HASH". The second command prints the inputs and
// results of such a block.
package main

import (
	"bufio"
	"fmt"
	"math"
	mathbits "math/bits"
	"os"
	"strconv"
	"strings"
)

const (
	blockCount  = 16
	blockInputs = 128
	// plainInputs are drawn from the first description and written out.
	plainInputs = 16
)

type function struct {
	name   string
	apply  func(x, y float64) float64
	binary bool
	// draws describe inputs: kind, lowest and highest exponent of 2 (of "any" and "positive"), or lowest and
	// highest number ("whole", and "quarter" in quarters); for two arguments, separated by a comma.
	draws string
	// borders are inputs at which an algorithm branches; their neighbours and negatives are inputs too.
	borders []float64
}

func unary(f func(float64) float64) func(x, y float64) float64 {
	return func(x, _ float64) float64 { return f(x) }
}

var multiplesOfQuarterPi = []float64{
	math.Pi / 4, math.Pi / 2, 3 * math.Pi / 4, math.Pi, 5 * math.Pi / 4, 3 * math.Pi / 2, 7 * math.Pi / 4,
	2 * math.Pi, 1 << 29, 1 << 30, 1e-7, 6381956970095103 * math.Pow(2, 797),
}

var functions = []function{
	{"exp", unary(math.Exp), false, "any:-30:9 any:5:9", []float64{709.782712893384, 1023.5 * math.Ln2, 708.3964185322641, 745.1332191019411, 1075.5 * math.Ln2, math.Ln2 / 2, 1.0 / (1 << 28)}},
	{"exp2", unary(math.Exp2), false, "any:-30:10 quarter:-4400:4400", []float64{1023.9999999999999, 1022, 1023.5, 1074, 1074.5, 1075, 0.5, 1.5}},
	{"ln", unary(math.Log), false, "positive:-1023:1023 positive:-3:3", []float64{math.Sqrt2 / 2, math.Sqrt2, math.Sqrt2 * 2}},
	{"log2", unary(math.Log2), false, "positive:-1023:1023 positive:-3:3", []float64{math.Sqrt2 / 2, math.Sqrt2, math.Sqrt2 * 2}},
	{"log10", unary(math.Log10), false, "positive:-1023:1023 positive:-3:3", []float64{math.Sqrt2 / 2, math.Sqrt2, 1000}},
	{"sqrt", unary(math.Sqrt), false, "positive:-1023:1023", nil},
	{"sin", unary(math.Sin), false, "any:-10:10 any:25:1023", multiplesOfQuarterPi},
	{"cos", unary(math.Cos), false, "any:-10:10 any:25:1023", multiplesOfQuarterPi},
	{"tan", unary(math.Tan), false, "any:-10:10 any:25:1023", multiplesOfQuarterPi},
	{"asin", unary(math.Asin), false, "any:-30:0 any:-2:-1", []float64{0.7}},
	{"acos", unary(math.Acos), false, "any:-30:0 any:-2:-1", []float64{0.7}},
	{"atan", unary(math.Atan), false, "any:-30:30 any:-2:2", []float64{0.66, 2.414213562373095}},
	{"sinh", unary(math.Sinh), false, "any:-10:9 any:-3:4", []float64{0.5, 21, 709.782712893384, 1023.5 * math.Ln2}},
	{"cosh", unary(math.Cosh), false, "any:-10:9 any:-3:4", []float64{21, 709.782712893384, 1023.5 * math.Ln2}},
	{"tanh", unary(math.Tanh), false, "any:-10:6 any:-2:3", []float64{0.625, 44.01484596555653}},
	{"asinh", unary(math.Asinh), false, "any:-30:30 any:-4:2", []float64{1 << 28, 2, 1.0 / (1 << 28)}},
	{"acosh", unary(math.Acosh), false, "positive:-1:30 positive:0:1", []float64{1 << 28, 2}},
	{"atanh", unary(math.Atanh), false, "any:-30:-1 any:-4:-1", []float64{1.0 / (1 << 28), 0.5, 0.41421356237309503, 0.2928932188134525}},
	{"floor", unary(math.Floor), false, "any:-3:54", []float64{1 << 52, 2.5}},
	{"ceil", unary(math.Ceil), false, "any:-3:54", []float64{1 << 52, 2.5}},
	{"trunc", unary(math.Trunc), false, "any:-3:54", []float64{1 << 52, 2.5}},
	{"round", unary(math.Round), false, "any:-3:54", []float64{1 << 52, 2.5}},
	{"pow", math.Pow, true, "positive:-12:12,quarter:-200:200 any:-1023:1023,whole:-40:40 positive:-1023:1023,any:-30:4", nil},
	{"mod", math.Mod, true, "any:-20:40,any:-20:20 any:-1023:1023,any:-1023:1023", nil},
	{"atan2", math.Atan2, true, "any:-20:20,any:-20:20 any:-1023:1023,any:-1023:1023", nil},
}

// specials are inputs of every function, with their negatives.
var specials = []float64{
	0, 5e-324, 1e-310, 2.2250738585072014e-308, 1e-9, 0.1, 0.5, 1, 1.5, 2, 3, 10, 100, 1000, 1e6, 1 << 52,
	1<<53 - 1, 1 << 53, 1 << 62, 1 << 63, 1e22, 1e300, math.MaxFloat64, math.Inf(1),
}

// pairSpecials are both inputs of functions of two arguments, with their negatives.
var pairSpecials = []float64{0, 5e-324, 0.5, 1, 2, 3, 1<<53 - 1, 1 << 63, math.Inf(1)}

// splitMix64 is the generator of Steele, Lea and Flood.
type splitMix64 uint64

func (s *splitMix64) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// draw takes two numbers from the generator, so that both languages stay in step.
func draw(source *splitMix64, description string) float64 {
	parts := strings.Split(description, ":")
	low, _ := strconv.Atoi(parts[1])
	high, _ := strconv.Atoi(parts[2])
	bits, choice := source.next(), source.next()
	chosen := low + int(choice%uint64(high-low+1))
	switch parts[0] {
	case "any":
		return math.Float64frombits(bits&(1<<63|1<<52-1) | uint64(chosen+1023)<<52)
	case "positive":
		return math.Float64frombits(bits&(1<<52-1) | uint64(chosen+1023)<<52)
	case "whole":
		return float64(chosen)
	case "quarter":
		return float64(chosen) / 4
	}
	panic(description)
}

// bitsOf returns the bits of a result. NaN is one value: Go leaves its bits to the processor.
func bitsOf(x float64) uint64 {
	if math.IsNaN(x) {
		x = math.NaN()
	}
	return math.Float64bits(x)
}

// block calls visit for the inputs of a block.
func (f function) block(description string, number uint64, visit func(x, y float64)) {
	source := splitMix64(number)
	first, second, _ := strings.Cut(description, ",")
	for range blockInputs {
		x, y := draw(&source, first), 0.0
		if second != "" {
			y = draw(&source, second)
		}
		visit(x, y)
	}
}

func (f function) writePlain(out *bufio.Writer, x, y float64) {
	fmt.Fprintf(out, "= %s %016x", f.name, math.Float64bits(x))
	if f.binary {
		fmt.Fprintf(out, " %016x", math.Float64bits(y))
	}
	fmt.Fprintf(out, " %016x\n", bitsOf(f.apply(x, y)))
}

func (f function) write(out *bufio.Writer) {
	both := func(x float64) []float64 { return []float64{x, -x} }
	if f.binary {
		for _, left := range pairSpecials {
			for _, right := range pairSpecials {
				for _, x := range both(left) {
					for _, y := range both(right) {
						f.writePlain(out, x, y)
					}
				}
			}
		}
		for _, x := range []float64{0, 1, -1, 2, math.NaN()} {
			f.writePlain(out, x, math.NaN())
			f.writePlain(out, math.NaN(), x)
		}
	} else {
		inputs := []float64{math.NaN()}
		for _, x := range specials {
			inputs = append(inputs, both(x)...)
		}
		for _, border := range f.borders {
			for _, x := range []float64{math.Nextafter(border, 0), border, math.Nextafter(border, math.Inf(1))} {
				inputs = append(inputs, both(x)...)
			}
		}
		for _, x := range inputs {
			f.writePlain(out, x, 0)
		}
	}
	descriptions := strings.Fields(f.draws)
	left := plainInputs
	f.block(descriptions[0], 1<<32, func(x, y float64) {
		if left > 0 {
			f.writePlain(out, x, y)
		}
		left--
	})
	for _, description := range descriptions {
		for number := range uint64(blockCount) {
			hash := uint64(0)
			f.block(description, number, func(x, y float64) {
				hash = (mathbits.RotateLeft64(hash, 5) ^ bitsOf(f.apply(x, y))) * 0x9e3779b97f4a7c15
			})
			fmt.Fprintf(out, "# %s %s %d %016x\n", f.name, description, number, hash)
		}
	}
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, f := range functions {
		if len(os.Args) == 4 {
			if number, err := strconv.ParseUint(os.Args[3], 10, 64); err == nil && f.name == os.Args[1] {
				f.block(os.Args[2], number, func(x, y float64) { f.writePlain(out, x, y) })
			}
			continue
		}
		f.write(out)
	}
}
