//! Each function by its name in PromQL, on inputs whose results Go's package `math` has written.

use std::collections::BTreeSet;

use chronolith_exec::plan::node::MapFn;

use super::map_fn;

/// Written by `tools/go-math-golden`.
const GOLDEN: &str = include_str!("../../../../../model/testdata/go-math.golden");

/// The C library computed `exp` and similar, with another last bit for some inputs: recorded series differed
/// from Prometheus's. Each name has Go's function.
#[test]
fn functions_by_name_have_the_bits_of_go() {
    let number = |text: &str| f64::from_bits(u64::from_str_radix(text, 16).expect("hexadecimal digits"));
    let mut names = BTreeSet::new();
    for line in GOLDEN.lines() {
        let ["=", name, input, result] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let Some(MapFn::Plain(function)) = map_fn(name) else { continue };
        let (found, want) = (function(number(input)), number(result));
        let is_equal = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
        assert!(is_equal, "{name} of {}: {found:e}, in Go {want:e}", number(input));
        names.insert(name);
    }
    assert_eq!(names.len(), 19, "{names:?}");
}
