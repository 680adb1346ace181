//! Sizes as people write them: `64MiB`, `1GB`, `4096`.
//! Invariant: what does not fit a `u64` of bytes is no size, never rounded away.

const SIZES: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Bytes of a size. `KB`, `MB`, ... are powers of 1000; `KiB`, `K`, ... of 1024.
#[must_use]
pub fn parse_size_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_know_both_thousands() {
        let cases =
            [("64MiB", 64 << 20), ("1GB", 1_000_000_000), ("4096", 4096), ("10 K", 10_240), ("5b", 5)];
        for (text, bytes) in cases {
            assert_eq!(parse_size_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "MiB", "-1", "1.5G", "1XB", "99999999999TiB"] {
            assert_eq!(parse_size_bytes(bad), None, "{bad}");
        }
    }
}
