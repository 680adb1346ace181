//! List of addresses and CIDR ranges, of IPv4 and IPv6.
//!
//! Invariants: an IPv4 address that is mapped into IPv6 counts as the IPv4 address, in the list and of a
//! peer; an address of a range has no bits beyond its prefix.
//! Not here: sockets (`server::serve`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of an IPv4 address that is mapped into IPv6 before the address.
const MAPPED_PREFIX_BITS: u8 = 96;

/// Addresses from which clients may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRanges(Vec<Range>);

/// Addresses that begin with the first `prefix_bits` of `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: IpAddr,
    prefix_bits: u8,
}

impl AddressRanges {
    /// Parses addresses (`192.0.2.1`, `2001:db8::1`) and ranges (`10.0.0.0/8`, `2001:db8::/32`) that are
    /// separated by commas.
    ///
    /// # Errors
    /// Names an entry that is neither, and a range whose address has bits beyond the prefix.
    pub fn parse(list: &str) -> Result<AddressRanges, String> {
        list.split(',').map(str::trim).map(Range::parse).collect::<Result<_, _>>().map(AddressRanges)
    }

    /// Returns true if one of the ranges has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(address))
    }

    /// Returns true if a range has all addresses of IPv4 or of IPv6.
    #[must_use]
    pub fn has_all_of_a_family(&self) -> bool {
        self.0.iter().any(|range| range.prefix_bits == 0)
    }
}

impl fmt::Display for AddressRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, Range { first, prefix_bits }) in self.0.iter().enumerate() {
            write!(f, "{}{first}/{prefix_bits}", if idx == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Range {
    fn parse(text: &str) -> Result<Range, String> {
        let invalid = || format!("invalid address {text:?}, expected ADDRESS or ADDRESS/BITS");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits_max = width_bits(address);
        let prefix_bits = match prefix {
            None => bits_max,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= bits_max).ok_or_else(invalid)?
            }
            Some(_) => return Err(invalid()),
        };
        let first = masked(address, prefix_bits);
        if first != address {
            return Err(format!(
                "invalid range {text:?}: the address has bits beyond the prefix, expected {first}/{prefix_bits}"
            ));
        }
        Ok(match address.to_canonical() {
            mapped if mapped != address && prefix_bits >= MAPPED_PREFIX_BITS => {
                Range { first: mapped, prefix_bits: prefix_bits - MAPPED_PREFIX_BITS }
            }
            _ => Range { first: address, prefix_bits },
        })
    }

    fn contains(self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && masked(address, self.prefix_bits) == self.first
    }
}

fn width_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the address with all bits after the prefix set to 0.
fn masked(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let zeroed_bits = u32::from(width_bits(address).saturating_sub(prefix_bits));
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(zeroed_bits).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(zeroed_bits).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, inside: &[&str], outside: &[&str]) {
        let ranges = AddressRanges::parse(list).expect(list);
        let contains = |text: &&str| ranges.contains(text.parse().expect("an address"));
        assert!(inside.iter().all(contains), "{list}: {inside:?}");
        assert!(!outside.iter().any(contains), "{list}: {outside:?}");
    }

    #[test]
    fn ranges_end_at_their_first_and_last_address() {
        check("192.0.2.1", &["192.0.2.1"], &["192.0.2.0", "192.0.2.2", "::192.0.2.1"]);
        check("10.0.0.0/8", &["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0"]);
        check("10.1.2.128/25", &["10.1.2.128", "10.1.2.255"], &["10.1.2.127", "10.1.3.128"]);
        check("2001:db8::1", &["2001:db8::1"], &["2001:db8::2"]);
        check("2001:db8::/33", &["2001:db8::", "2001:db8:7fff:ffff::1"], &["2001:db8:8000::", "2001:db7::"]);
        check(" 10.0.0.1 , ::1 ", &["10.0.0.1", "::1"], &["10.0.0.2", "::2"]);
        check("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::1"]);
        check("::/0", &["::1", "2001:db8::1"], &["127.0.0.1"]);
    }

    /// A socket of IPv6 that takes connections of both families has peers such as `::ffff:10.0.0.1`.
    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        check("10.0.0.0/8", &["::ffff:10.1.2.3"], &["::ffff:11.1.2.3"]);
        check("::ffff:10.0.0.0/104", &["10.1.2.3", "::ffff:10.1.2.3"], &["11.1.2.3"]);
        check("::ffff:192.0.2.1", &["192.0.2.1"], &["192.0.2.2"]);
    }

    #[test]
    fn an_entry_that_is_no_range_is_named() {
        for (list, part) in [
            ("", "\"\""),
            ("10.0.0.0/8,", "\"\""),
            ("10.0.0.0/33", "\"10.0.0.0/33\""),
            ("::/129", "\"::/129\""),
            ("10.0.0.0/+8", "\"10.0.0.0/+8\""),
            ("10.0.0.0/", "\"10.0.0.0/\""),
            ("relay.example", "\"relay.example\""),
            ("[::1]", "\"[::1]\""),
            ("10.0.0.1:2003", "\"10.0.0.1:2003\""),
            ("10.1.2.3/8", "expected 10.0.0.0/8"),
            ("2001:db8::1/32", "expected 2001:db8::/32"),
        ] {
            let error = AddressRanges::parse(list).expect_err(list);
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn a_range_of_all_addresses_restricts_nothing() {
        for (list, is_open) in [("0.0.0.0/0", true), ("10.0.0.0/8,::/0", true), ("0.0.0.0/1", false)] {
            let ranges = AddressRanges::parse(list).expect(list);
            assert_eq!((ranges.has_all_of_a_family(), ranges.to_string().as_str()), (is_open, list));
        }
    }
}
