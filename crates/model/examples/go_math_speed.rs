//! Cost per call of the functions of `go_math` and of `std`. Run with
//! `cargo run --release -p chronolith-model --example go_math_speed`.

use std::hint::black_box;
use std::time::Instant;

use chronolith_model::go_math;

const INPUTS: usize = 4096;
const ROUNDS: usize = 200;

type Unary = fn(f64) -> f64;

/// Name, own function, function of `std`, lowest and highest input.
const FUNCTIONS: [(&str, Unary, Unary, f64, f64); 18] = [
    ("exp", go_math::exp, f64::exp, -20.0, 20.0),
    ("exp2", go_math::exp2, f64::exp2, -20.0, 20.0),
    ("ln", go_math::ln, f64::ln, 0.001, 1e6),
    ("log2", go_math::log2, f64::log2, 0.001, 1e6),
    ("log10", go_math::log10, f64::log10, 0.001, 1e6),
    ("sin", go_math::sin, f64::sin, -100.0, 100.0),
    ("cos", go_math::cos, f64::cos, -100.0, 100.0),
    ("tan", go_math::tan, f64::tan, -100.0, 100.0),
    ("sin 1e15", go_math::sin, f64::sin, 1e14, 1e15),
    ("asin", go_math::asin, f64::asin, -1.0, 1.0),
    ("acos", go_math::acos, f64::acos, -1.0, 1.0),
    ("atan", go_math::atan, f64::atan, -10.0, 10.0),
    ("sinh", go_math::sinh, f64::sinh, -5.0, 5.0),
    ("cosh", go_math::cosh, f64::cosh, -5.0, 5.0),
    ("tanh", go_math::tanh, f64::tanh, -5.0, 5.0),
    ("asinh", go_math::asinh, f64::asinh, -5.0, 5.0),
    ("acosh", go_math::acosh, f64::acosh, 1.0, 5.0),
    ("atanh", go_math::atanh, f64::atanh, -1.0, 1.0),
];

fn main() {
    println!("{:<10} {:>8} {:>8}  inputs with other bits", "ns/call", "go_math", "std");
    for (name, own, other, low, high) in FUNCTIONS {
        report(name, own, other, &inputs(low, high));
    }
    let bases = inputs(0.001, 1e6);
    report("x ^ 2", |x| go_math::pow(x, 2.0), |x| x.powf(black_box(2.0)), &bases);
    report("x ^ 0.3", |x| go_math::pow(x, 0.3), |x| x.powf(black_box(0.3)), &bases);
    report("x ^ -7.4", |x| go_math::pow(x, -7.4), |x| x.powf(black_box(-7.4)), &bases);
    report("x atan2 3", |x| go_math::atan2(x, 3.0), |x| x.atan2(black_box(3.0)), &inputs(-10.0, 10.0));
}

/// Inputs between two numbers, in an order without a pattern.
fn inputs(low: f64, high: f64) -> Vec<f64> {
    let fraction = |idx: usize| (idx.wrapping_mul(2_654_435_769) % (1 << 32)) as f64 / (1_u64 << 32) as f64;
    (1..=INPUTS).map(|idx| low + (high - low) * fraction(idx)).collect()
}

fn report(name: &str, own: Unary, other: Unary, inputs: &[f64]) {
    let differing = inputs.iter().filter(|x| own(**x).to_bits() != other(**x).to_bits()).count();
    println!(
        "{name:<10} {:>8.1} {:>8.1}  {differing} of {INPUTS}",
        cost_ns(own, inputs),
        cost_ns(other, inputs)
    );
}

/// Time per call in ns: the least of all rounds.
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn cost_ns(function: Unary, inputs: &[f64]) -> f64 {
    let round = |_| {
        let started = Instant::now();
        for x in inputs {
            black_box(black_box(function)(*x));
        }
        started.elapsed().as_nanos() as f64 / inputs.len() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
