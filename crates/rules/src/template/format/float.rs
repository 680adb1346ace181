//! Floats: Go's `strconv.FormatFloat` and the flags of `fmt`.

use chronolith_model::decimal::{decimal, scientific};

use super::flags::Flags;

/// Digits after the point that a double can have; all later ones are zeros.
const FRACTION_DIGITS_MAX: usize = 1100;
/// Bits of the fraction of a double.
const FRACTION_BITS: u32 = 52;

/// Returns a float that is not negative, without padding; `None` if `verb` is not one of a float.
pub(super) fn unsigned_text(value: f64, verb: char, flags: &Flags) -> Option<String> {
    let (verb, default_precision) = match verb {
        'v' => ('g', None),
        'b' | 'g' | 'G' | 'x' | 'X' => (verb, None),
        'f' | 'e' | 'E' => (verb, Some(6)),
        'F' => ('f', Some(6)),
        _ => return None,
    };
    let precision = flags.precision.or(default_precision);
    let text = format_float(value, verb, precision);
    let has_point = flags.sharp && verb != 'b' && value.is_finite();
    Some(if has_point { with_point(&text, verb, precision) } else { text })
}

/// Adds a decimal point and the zeros that `%g` removes.
fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let exponent_letters: &[char] = match verb {
        'x' | 'X' => &['p', 'P'],
        _ => &['e', 'E'],
    };
    let at = text.find(exponent_letters).unwrap_or(text.len());
    let (number, tail) = text.split_at_checked(at).unwrap_or((text, ""));
    let mut wanted = match verb {
        'g' | 'G' | 'x' | 'X' => precision.unwrap_or(6),
        _ => 0,
    };
    let significant = number.trim_start_matches(['0', '.']).chars().filter(|&c| c != '.').count();
    // The prefix of a hexadecimal number counts as a digit from its letter on.
    wanted = wanted.saturating_sub(significant);
    let mut out = number.to_owned();
    if !number.contains('.') {
        if number == "0" {
            wanted = wanted.saturating_sub(1);
        }
        out.push('.');
    }
    out.push_str(&"0".repeat(wanted));
    out.push_str(tail);
    out
}

/// Formats a float that is not negative. Without a precision the digits are the fewest that read back as it.
fn format_float(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return "Inf".to_owned();
    }
    match verb {
        'b' => binary(value),
        'x' => hexadecimal(value, precision),
        'X' => hexadecimal(value, precision).to_ascii_uppercase(),
        'f' => fixed(value, precision),
        'e' => exponential(value, precision),
        'E' => exponential(value, precision).to_ascii_uppercase(),
        'G' => general(value, precision).to_ascii_uppercase(),
        _ => general(value, precision),
    }
}

fn fixed(value: f64, precision: Option<usize>) -> String {
    let Some(precision) = precision else { return decimal(value) };
    let exact = precision.min(FRACTION_DIGITS_MAX);
    let text = format!("{value:.exact$}");
    text + &"0".repeat(precision - exact)
}

fn exponential(value: f64, precision: Option<usize>) -> String {
    let text = match precision {
        Some(precision) => {
            let exact = precision.min(FRACTION_DIGITS_MAX);
            let text = format!("{value:.exact$e}");
            let zeros = "0".repeat(precision - exact);
            text.replacen('e', &format!("{zeros}e"), 1)
        }
        None => scientific(value),
    };
    go_exponent(&text)
}

/// Two digits of the exponent at least, and its sign.
fn go_exponent(text: &str) -> String {
    let Some((digits, exponent)) = text.split_once('e') else { return text.to_owned() };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// `%g`: exponential below 1e-4 and from the precision on, else fixed; without zeros at the end.
fn general(value: f64, precision: Option<usize>) -> String {
    /// Exponent from which the shortest digits are exponential.
    const SHORTEST_EXPONENT_MAX: i32 = 6;
    let text = match precision {
        Some(precision) => format!("{value:.*e}", precision.clamp(1, FRACTION_DIGITS_MAX) - 1),
        None => scientific(value),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let digits = digits.trim_end_matches('0');
    let digit_count = digits.len();
    let exponent_max = match precision {
        None => SHORTEST_EXPONENT_MAX,
        Some(precision) => {
            let point = exponent + 1;
            let is_whole = i64::try_from(digit_count).is_ok_and(|count| count >= i64::from(point));
            let max = if precision.max(1) > digit_count && is_whole { digit_count } else { precision.max(1) };
            i32::try_from(max).unwrap_or(i32::MAX)
        }
    };
    if value != 0.0 && (exponent < -4 || exponent >= exponent_max) {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
        let point = if rest.is_empty() { "" } else { "." };
        return go_exponent(&format!("{first}{point}{rest}e{exponent}"));
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    plain(digits, exponent)
}

/// `digits` with the point after the first one, moved by `exponent`.
fn plain(digits: &str, exponent: i32) -> String {
    let Ok(before) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(usize::try_from(-(exponent + 1)).unwrap_or(0));
        return format!("0.{zeros}{digits}");
    };
    match digits.split_at_checked(before) {
        Some(("", fraction)) => format!("0.{fraction}"),
        Some((whole, "")) => whole.to_owned(),
        Some((whole, fraction)) => format!("{whole}.{fraction}"),
        None => format!("{digits}{}", "0".repeat(before - digits.len())),
    }
}

/// A float as fraction and exponent of two: the value is `mantissa * 2^exponent`.
struct Binary {
    mantissa: u64,
    exponent: i32,
}

fn binary_parts(value: f64) -> Binary {
    let bits = value.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    match (bits >> FRACTION_BITS & 0x7ff) as i32 {
        0 => Binary { mantissa: fraction, exponent: -1074 },
        exponent => Binary { mantissa: fraction | 1 << FRACTION_BITS, exponent: exponent - 1075 },
    }
}

/// Returns `4503599627370496p-52` for 1.
fn binary(value: f64) -> String {
    let Binary { mantissa, exponent } = binary_parts(value);
    format!("{mantissa}p{exponent:+}")
}

/// Returns `0x1.8p+01` for 3.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let Binary { mut mantissa, mut exponent } = binary_parts(value);
    if mantissa == 0 {
        exponent = 0;
    } else {
        let shift = mantissa.leading_zeros() - (63 - FRACTION_BITS);
        mantissa <<= shift;
        exponent += FRACTION_BITS as i32 - shift as i32;
    }
    let digit_count = precision.unwrap_or(13).min(13);
    let dropped = FRACTION_BITS - 4 * digit_count as u32;
    if dropped > 0 {
        // To the nearest, and to even between two.
        let half = 1 << (dropped - 1);
        let rest = mantissa & ((1 << dropped) - 1);
        mantissa >>= dropped;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa >> (FRACTION_BITS + 1) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:013x}", mantissa & ((1 << FRACTION_BITS) - 1));
    let digits = match precision {
        Some(precision) => {
            let kept = digits.get(..digit_count).unwrap_or("");
            format!("{kept}{}", "0".repeat(precision - digit_count))
        }
        None => digits.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    let whole = mantissa >> FRACTION_BITS;
    format!("0x{whole}{point}{digits}p{sign}{:02}", exponent.unsigned_abs())
}
