//! Functions of Go's package `math` with its bits on x86-64, so that PromQL has Prometheus's results.
//!
//! Invariants: results have the bits of Go 1.26 on linux/amd64 with FMA, its errors included (ADR 0132), on
//! every machine: nothing is left to a C library. NaN is one value; its sign and payload are not Go's.
//! Algorithms are from FreeBSD's msun, Cephes and Shibata, in Go's order of operations, which decides the
//! last bit.
//! Not here: functions that IEEE 754 defines to the last bit (`sqrt`, `floor`, `%`), which `std` has.

mod exponential;
mod hyperbolic;
mod inverse;
mod logarithm;
mod parts;
mod power;
#[cfg(test)]
mod tests;
mod trigonometric;

pub use exponential::{exp, exp2};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub use inverse::{acos, asin, atan, atan2};
pub use logarithm::{ln, log2, log10};
pub use power::pow;
pub use trigonometric::{cos, sin, tan};
