//! `%`, `^` and `atan2` on inputs whose results Go's package `math` has written.

use super::{BinaryOp, scalar_op};

/// Written by `tools/go-math-golden`.
const GOLDEN: &str = include_str!("../../../model/testdata/go-math.golden");

/// The C library computed `^` and `atan2`, with another last bit for some inputs: recorded series differed
/// from Prometheus's. Both have Go's bits.
#[test]
fn operators_have_the_bits_of_go() {
    let number = |text: &str| f64::from_bits(u64::from_str_radix(text, 16).expect("hexadecimal digits"));
    let mut checked = 0;
    for line in GOLDEN.lines() {
        let ["=", name, left, right, result] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let op = match name {
            "mod" => BinaryOp::Mod,
            "pow" => BinaryOp::Pow,
            "atan2" => BinaryOp::Atan2,
            _ => panic!("operator {name}"),
        };
        let (found, want) = (scalar_op(op, number(left), number(right)), number(result));
        let is_equal = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
        assert!(is_equal, "{left} {name} {right}: {found:e}, in Go {want:e}");
        checked += 1;
    }
    assert!(checked > 900, "{checked}");
}
