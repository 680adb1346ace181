//! Numbers of text protocols: floats, integers, digits of times.
//!
//! Invariants: a float has the bits that [`str::parse`] gives; an integer that does not fit is `None`; only
//! ASCII digits, signs, points and exponents are numbers.
//! Not here: error of a bad number (the grammar of a protocol).

/// Largest mantissa below which every integer is a float.
const MANTISSA_MAX: u64 = 1 << 53;
/// Digits that always fit `u64`.
const DIGIT_COUNT_EXACT: usize = 19;
/// Powers of ten that are floats without rounding.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
const ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGH_NIBBLES: u64 = 0xf0f0_f0f0_f0f0_f0f0;

/// Returns the value of a finite decimal number.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let (is_negative, digits) = split_sign(text);
    let mut mantissa = 0u64;
    let mut digit_count = 0usize;
    let mut fraction = None;
    for (idx, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            digit_count += 1;
        } else if byte == b'.' && fraction.is_none() {
            fraction = Some(idx);
        } else {
            return any_float(text);
        }
    }
    let scale = fraction.map_or(0, |point| digits.len() - 1 - point);
    if digit_count == 0 {
        return None;
    }
    // Both are exact, so one division rounds once, as the definition has it.
    match POWERS_OF_TEN.get(scale) {
        Some(power) if digit_count <= DIGIT_COUNT_EXACT && mantissa <= MANTISSA_MAX => {
            let value = mantissa as f64 / power;
            Some(if is_negative { -value } else { value })
        }
        _ => any_float(text),
    }
}

#[cold]
fn any_float(text: &[u8]) -> Option<f64> {
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.iter().all(is_number) || text.first() == Some(&b'+') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns the value of a decimal integer.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = split_sign(text);
    let magnitude = unsigned(digits)?;
    if is_negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Returns the value of decimal digits, at least one.
pub(crate) fn unsigned(digits: &[u8]) -> Option<u64> {
    let (eights, rest) = digits.as_chunks::<8>();
    if digits.is_empty() || digits.len() > DIGIT_COUNT_EXACT {
        return unsigned_of_many(digits);
    }
    let mut value = 0u64;
    for eight in eights {
        value = value * 100_000_000 + eight_digits(*eight)?;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

#[cold]
fn unsigned_of_many(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the value of eight digits at once: neighbours are joined to pairs, pairs to fours, fours to eight.
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(text);
    // A byte is a digit if its high nibble is 3, also after 6 was added.
    let is_high_3 = word & HIGH_NIBBLES == ZEROS;
    let is_low_9 = word.wrapping_add(0x0606_0606_0606_0606) & HIGH_NIBBLES == ZEROS;
    if !(is_high_3 && is_low_9) {
        return None;
    }
    let ones = word ^ ZEROS;
    let pairs = (ones.wrapping_mul(10).wrapping_add(ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::Rng;

    use super::*;

    #[track_caller]
    fn check_float(text: &str) {
        let want: Option<f64> = text.parse().ok().filter(|value: &f64| value.is_finite());
        assert_eq!(float(text.as_bytes()).map(f64::to_bits), want.map(f64::to_bits), "{text}");
    }

    #[test]
    fn floats_have_the_bits_of_the_standard_library() {
        for text in [
            "0",
            "-0",
            "1",
            ".5",
            "5.",
            "-.5",
            "1e5",
            "1E+5",
            "1e-5",
            "123.4",
            "9007199254740993",
            "1e400",
            "9007199254740992",
            "0.1",
            "1e22",
            "1e23",
            "0.00000000000000000000001",
            "-1.5e-300",
            "1e-400",
            "0.0000000000000000000000000000000000000001",
            "12345678901234567890.5",
            "179769313486231580793e290",
            "00000000000000000000000000.5",
            ".",
            "-",
            "-.",
            "",
            "1e",
            "e1",
            "1.2.3",
            "1-1",
            "--1",
        ] {
            check_float(text);
        }
        let rng = Rng::from_seed(1);
        for _ in 0..50_000 {
            let (whole, fraction) = (rng.next_u64() >> rng.below(64), rng.next_u64() >> rng.below(64));
            check_float(&format!("{whole}.{fraction}"));
            check_float(&format!("-{}e{}", whole % 1_000_000, fraction % 320));
            check_float(
                &format!("{}", f64::from_bits(rng.next_u64())).replace("NaN", "1").replace("inf", "1"),
            );
        }
        assert_eq!(float(b"+1"), None);
        assert_eq!(float(b"inf"), None);
        assert_eq!(float(b"nan"), None);
    }

    #[test]
    fn integers_are_exact_to_both_ends() {
        let rng = Rng::from_seed(2);
        for _ in 0..50_000 {
            let value = rng.next_u64() >> rng.below(64);
            assert_eq!(unsigned(value.to_string().as_bytes()), Some(value));
            assert_eq!(unsigned(format!("000{value}").as_bytes()), Some(value));
            let signed = value.cast_signed();
            assert_eq!(integer(signed.to_string().as_bytes()), Some(signed));
        }
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer(b"9223372036854775808"), None);
        assert_eq!(integer(b"-9223372036854775809"), None);
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        for text in ["", "-", "+1", "1.", "12345678a", "1234567:", "1234567/", "a2345678", "1 ", "--1"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
