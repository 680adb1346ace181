//! Bounds of classic buckets and quantiles in the form that OpenMetrics gives floats: `1` becomes `1.0`.
//!
//! Invariant: nothing is allocated for bounds of the usual form. Text that is not a number stays as it is.

use chronolith_model::histogram::go_float;

use super::value;

/// Digits below which every decimal is its own shortest form.
const DIGIT_COUNT_EXACT: usize = 15;
/// Digits before the point from which the form has an exponent.
const WHOLE_DIGITS_MAX: usize = 6;
/// Zeros after the point from which the form has an exponent.
const LEADING_ZEROS_MAX: usize = 3;

/// Returns a float in the form of OpenMetrics.
pub(super) fn open_metrics_float(value: f64) -> String {
    // Minus zero has no sign there.
    let mut text = go_float(if value == 0.0 { 0.0 } else { value });
    if value.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

/// Bounds as text, so that the bounds of buckets are formatted once per body: a direct-mapped cache.
#[derive(Debug, Default)]
pub(super) struct BoundTexts {
    entries: Vec<(u64, String)>,
}

/// Entries of the cache: more than the buckets of most histograms.
const BOUND_ENTRIES: usize = 256;

impl BoundTexts {
    /// Returns the form of `value`.
    pub(super) fn text(&mut self, value: f64) -> &str {
        let bits = value.to_bits();
        let slot = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % BOUND_ENTRIES;
        if self.entries.is_empty() {
            self.entries.resize_with(BOUND_ENTRIES, || (0, open_metrics_float(0.0)));
        }
        match self.entries.get_mut(slot) {
            Some(entry) => {
                if entry.0 != bits {
                    *entry = (bits, open_metrics_float(value));
                }
                &entry.1
            }
            None => "",
        }
    }
}

/// Appends the form of `text` to `out` if it is another one. Returns true if it is.
pub(super) fn replace_bound(text: &[u8], out: &mut Vec<u8>) -> bool {
    if text == b"+Inf" || is_usual(text) {
        return false;
    }
    let is_whole = text.len() <= WHOLE_DIGITS_MAX && text.iter().all(u8::is_ascii_digit);
    if is_whole && (text.len() == 1 || text.first().is_some_and(|digit| *digit != b'0')) {
        out.extend_from_slice(text);
        out.extend_from_slice(b".0");
        return true;
    }
    match value::float(text) {
        Ok(value) => {
            let form = open_metrics_float(value);
            out.extend_from_slice(form.as_bytes());
            form.as_bytes() != text
        }
        Err(_) => false,
    }
}

/// Returns true for decimals with a point that are their own form.
fn is_usual(text: &[u8]) -> bool {
    let Some(point) = text.iter().position(|byte| *byte == b'.') else { return false };
    let (whole, rest) = text.split_at(point);
    let fraction = rest.get(1..).unwrap_or(&[]);
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !digits(whole) || !digits(fraction) || text.len() > DIGIT_COUNT_EXACT || whole.len() > WHOLE_DIGITS_MAX
    {
        return false;
    }
    if fraction.len() > 1 && fraction.last() == Some(&b'0') {
        return false;
    }
    if whole != b"0" {
        return whole.first() != Some(&b'0');
    }
    let leading_zeros = fraction.iter().take_while(|digit| **digit == b'0').count();
    fraction == b"0" || leading_zeros <= LEADING_ZEROS_MAX
}

#[cfg(test)]
mod tests {
    use chronolith_base::Rng;

    use super::*;

    fn replaced(text: &str) -> String {
        let mut out = Vec::new();
        let is_other = replace_bound(text.as_bytes(), &mut out);
        if is_other { String::from_utf8(out).expect("text") } else { text.to_owned() }
    }

    #[test]
    fn bounds_have_the_form_of_openmetrics() {
        for (text, want) in [
            ("1", "1.0"),
            ("0", "0.0"),
            ("-0", "0.0"),
            ("-1", "-1.0"),
            ("10", "10.0"),
            ("007", "7.0"),
            ("0.5", "0.5"),
            (".5", "0.5"),
            ("0.50", "0.5"),
            ("00.5", "0.5"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("100000", "100000.0"),
            ("1000000", "1e+06"),
            ("1e6", "1e+06"),
            ("1e+06", "1e+06"),
            ("1234567.5", "1.2345675e+06"),
            ("+Inf", "+Inf"),
            ("inf", "+Inf"),
            ("-INF", "-Inf"),
            ("nan", "NaN"),
            ("", ""),
            ("abc", "abc"),
            ("0.1234567890123456789", "0.12345678901234568"),
        ] {
            assert_eq!(replaced(text), want, "{text}");
        }
    }

    #[test]
    fn cached_bounds_are_those_of_their_values() {
        let mut texts = BoundTexts::default();
        for round in 0..2 {
            for idx in 0..1_000 {
                let value = f64::from(idx) / 8.0 - 3.0;
                assert_eq!(texts.text(value), open_metrics_float(value), "{round}");
            }
        }
        assert_eq!(texts.text(0.0), "0.0");
        assert_eq!(texts.text(-0.0), "0.0");
        let first = texts.text(0.1).as_ptr();
        assert_eq!(texts.text(0.1).as_ptr(), first, "the text is kept");
    }

    #[test]
    fn usual_bounds_are_their_own_form() {
        let rng = Rng::from_seed(3);
        for _ in 0..20_000 {
            let (whole, scale) = (rng.next_u64() >> rng.below(64), rng.below(12) as usize);
            let text = format!("{}.{:0scale$}", whole % 10_000_000, whole % 100_000);
            let want = open_metrics_float(text.parse().expect("a float"));
            assert_eq!(replaced(&text), want, "{text}");
        }
    }
}
