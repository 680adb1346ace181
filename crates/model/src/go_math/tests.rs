//! Comparison with results of Go's package `math`, written by `tools/go-math-golden`.

use super::{
    acos, acosh, asin, asinh, atan, atan2, atanh, cos, cosh, exp, exp2, ln, log2, log10, pow, sin, sinh, tan,
    tanh,
};

const GOLDEN: &str = include_str!("../../testdata/go-math.golden");
/// Inputs per hash.
const BLOCK_INPUTS: usize = 128;

/// A function with the name that it has in the file.
enum Function {
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
}

impl Function {
    fn named(name: &str) -> Function {
        let unary: fn(f64) -> f64 = match name {
            "pow" => return Function::Binary(pow),
            "atan2" => return Function::Binary(atan2),
            "mod" => return Function::Binary(|x, y| x % y),
            "exp" => exp,
            "exp2" => exp2,
            "ln" => ln,
            "log2" => log2,
            "log10" => log10,
            "sqrt" => f64::sqrt,
            "sin" => sin,
            "cos" => cos,
            "tan" => tan,
            "asin" => asin,
            "acos" => acos,
            "atan" => atan,
            "sinh" => sinh,
            "cosh" => cosh,
            "tanh" => tanh,
            "asinh" => asinh,
            "acosh" => acosh,
            "atanh" => atanh,
            "floor" => f64::floor,
            "ceil" => f64::ceil,
            "trunc" => f64::trunc,
            "round" => f64::round,
            _ => panic!("function {name}"),
        };
        Function::Unary(unary)
    }

    /// Bits of the result; any NaN is 0x7ff8000000000001, as in the file.
    fn bits(&self, inputs: &[f64]) -> u64 {
        let result = match (self, inputs) {
            (Function::Unary(function), [x]) => function(*x),
            (Function::Binary(function), [x, y]) => function(*x, *y),
            _ => panic!("{} inputs", inputs.len()),
        };
        if result.is_nan() { 0x7ff8_0000_0000_0001 } else { result.to_bits() }
    }
}

fn from_hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("hexadecimal digits")
}

/// The generator of Steele, Lea and Flood, as in the program that wrote the file.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Draws an input from a description as `any:-30:9`.
    fn draw(&mut self, description: &str) -> f64 {
        let [kind, low, high] = description.split(':').collect::<Vec<_>>()[..] else {
            panic!("{description}")
        };
        let [low, high] = [low, high].map(|text| text.parse::<i64>().expect("a number"));
        let (bits, choice) = (self.next(), self.next());
        let chosen = low + (choice % (high - low + 1).cast_unsigned()).cast_signed();
        let exponent = (chosen + 1023).cast_unsigned() << 52;
        let fraction = bits & ((1 << 52) - 1);
        match kind {
            "any" => f64::from_bits(bits & 1 << 63 | fraction | exponent),
            "positive" => f64::from_bits(fraction | exponent),
            "whole" => chosen as f64,
            "quarter" => chosen as f64 / 4.0,
            _ => panic!("inputs {kind}"),
        }
    }
}

/// Hash of the results of a block of inputs.
fn block_hash(function: &Function, descriptions: &str, number: u64) -> u64 {
    let mut source = SplitMix64(number);
    (0..BLOCK_INPUTS).fold(0_u64, |hash, _| {
        let inputs: Vec<f64> = descriptions.split(',').map(|text| source.draw(text)).collect();
        (hash.rotate_left(5) ^ function.bits(&inputs)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

#[test]
fn functions_have_the_bits_of_go() {
    let (mut written, mut hashed, mut failures) = (0, 0, Vec::new());
    for line in GOLDEN.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", name, descriptions, number, hash] => {
                hashed += 1;
                let number = number.parse().expect("a number");
                if block_hash(&Function::named(name), descriptions, number) != from_hex(hash) {
                    failures.push(line.to_owned());
                }
            }
            ["=", name, ref inputs @ .., result] => {
                written += 1;
                let inputs: Vec<f64> = inputs.iter().map(|text| f64::from_bits(from_hex(text))).collect();
                let found = Function::named(name).bits(&inputs);
                if found != from_hex(result) {
                    let [found, want] = [found, from_hex(result)].map(f64::from_bits);
                    failures.push(format!("{name} of {inputs:?}: {found:e}, in Go {want:e}"));
                }
            }
            _ => panic!("line {line}"),
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(written > 3000 && hashed > 700, "{written} results and {hashed} hashes");
}
