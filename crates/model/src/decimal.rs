//! Shortest decimal digits of a double, as Go prints them.
//!
//! Invariant: of two shortest candidates at the same distance from the value the one with an even last digit
//! is taken, as Go and Python do; the formatting of the standard library takes the larger one.

/// Fewest digits of which two candidates can be at the same distance: with fewer, only one is nearest.
const DIGITS_OF_TIES_MIN: usize = 16;
/// Digits after which the expansion of a value that is in the middle ends.
const DIGITS_CHECKED: usize = 40;

/// Returns the shortest decimal that reads back as `value`, without exponent (Go's `'f', -1`). Infinities and
/// NaN have the texts of the standard library.
#[must_use]
pub fn decimal(value: f64) -> String {
    let text = format!("{value}");
    match even_digits(value) {
        // The last digit that is not a zero differs.
        Some(digit) => {
            let at = text.rfind(|c: char| c.is_ascii_digit() && c != '0').unwrap_or(0);
            replaced(&text, at, digit)
        }
        None => text,
    }
}

/// Returns the shortest digits that read back as `value`, with an exponent (`1.5e-7`).
#[must_use]
pub fn scientific(value: f64) -> String {
    let text = format!("{value:e}");
    match even_digits(value) {
        Some(digit) => {
            let at = text.find('e').unwrap_or(text.len()).saturating_sub(1);
            replaced(&text, at, digit)
        }
        None => text,
    }
}

/// The even last digit, if the shortest digits end in an odd one at the same distance from the value.
fn even_digits(value: f64) -> Option<char> {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let last = char::from(*mantissa.as_bytes().last()?).to_digit(10)?;
    if digits < DIGITS_OF_TIES_MIN || last.is_multiple_of(2) {
        return None;
    }
    // The middle of two candidates has one digit more, a 5, and then nothing.
    let exact = format!("{value:.DIGITS_CHECKED$e}");
    let (expansion, of_exact) = exact.split_once('e')?;
    let rest = expansion.get(mantissa.len()..)?;
    let is_middle = of_exact == exponent && rest.trim_end_matches('0') == "5";
    let even = char::from_digit(last - 1, 10)?;
    // Both have to read back.
    let candidate = format!("{}{even}e{exponent}", mantissa.get(..mantissa.len() - 1)?);
    (is_middle && candidate.parse() == Ok(value)).then_some(even)
}

fn replaced(text: &str, at: usize, digit: char) -> String {
    let mut out = String::with_capacity(text.len());
    out.push_str(text.get(..at).unwrap_or(""));
    out.push(digit);
    out.push_str(text.get(at + 1..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ties of the shortest digits were rounded up. The expected values are from Go's strconv.
    #[test]
    fn ties_of_the_shortest_digits_round_to_even() {
        let rows = [
            (f64::from_bits(0x3f98_3e80_0000_0000), "0.023675918579101562"),
            (f64::from_bits(0x4085_ebdb_6000_0000), "701.4821166992188"),
            (f64::from_bits(0x42ee_bb46_4f4c_8644), "270317498557490.12"),
            (f64::from_bits(0x423c_3d34_eafe_5c00), "121285962494.35938"),
            (f64::from_bits(0x4138_2e2b_a3a0_0000), "1584683.6391601562"),
            (f64::from_bits(0x41d9_5328_04ed_c000), "1699520531.7148438"),
            (f64::from_bits(0x4215_6918_1475_0800), "22989374749.257812"),
            (f64::from_bits(0x3f42_0800_0000_0000), "0.0005502700805664062"),
            (f64::from_bits(0x4088_cf09_6000_0000), "793.8795776367188"),
            (f64::from_bits(0x4052_1306_8000_0000), "72.29727172851562"),
            (f64::from_bits(0x3f50_3c00_0000_0000), "0.0009908676147460938"),
            (f64::from_bits(0x3efa_c000_0000_0000), "0.000025510787963867188"),
            (f64::from_bits(0x4024_5212_0000_0000), "10.160293579101562"),
            (f64::from_bits(0x412c_2cc1_2bc0_0000), "923232.5854492188"),
            (2f64.powi(-25), "0.000000029802322387695312"),
        ];
        for (value, want) in rows {
            assert_eq!(decimal(value), want);
            assert_eq!(scientific(value).parse(), Ok(value));
            assert_eq!(decimal(-value), format!("-{want}"));
        }
        assert_eq!(scientific(2f64.powi(-25)), "2.9802322387695312e-8");
        for value in [0.0, 1.0, 0.1, 1e21, 5e-324, f64::MAX, 123_456.789, f64::INFINITY, 1e-7] {
            assert_eq!((decimal(value), scientific(value)), (format!("{value}"), format!("{value:e}")));
        }
    }
}
