//! Tests of names of stores: round trips, order, and names that are refused.

use chronolith_base::Rng;

use super::*;

/// Characters of tenant ids, from both sides of the reserved prefix in the order of bytes.
const CHARACTERS: &[u8] = b"!'()*-.09AZ_az";
const ROUND_COUNT: usize = 20_000;

fn random_store(rng: &Rng) -> StoreId {
    // Small and random numbers, so that equal ones and neighbours occur.
    let number = if rng.below(2) == 0 { rng.below(4) } else { rng.next_u64() };
    match rng.below(3) {
        0 => StoreId::Database { number },
        1 => StoreId::Graphite { number },
        _ => loop {
            let len = 1 + rng.below(4);
            let id: String =
                (0..len).map(|_| CHARACTERS[rng.below(CHARACTERS.len() as u64) as usize] as char).collect();
            if let Ok(tenant) = TenantId::new(&id) {
                return tenant.into();
            }
        },
    }
}

#[test]
fn a_store_is_read_back_from_its_name() {
    let rng = Rng::from_seed(1);
    for _ in 0..ROUND_COUNT {
        let store = random_store(&rng);
        assert_eq!(parse_store_name(&store_name(&store)), Ok(store));
    }
}

#[test]
fn ids_sort_and_differ_as_their_names_do() {
    let rng = Rng::from_seed(2);
    for _ in 0..ROUND_COUNT {
        let (left, right) = (random_store(&rng), random_store(&rng));
        let of_names = store_name(&left).cmp(&store_name(&right));
        assert_eq!(left.cmp(&right), of_names, "{left:?} and {right:?}");
        assert_eq!(left == right, of_names.is_eq(), "{left:?} and {right:?}");
    }
}

#[test]
fn names_are_those_of_existing_data_directories() {
    #[track_caller]
    fn check(name: &str, store: &StoreId) {
        assert_eq!(store_name(store), name);
        assert_eq!(parse_store_name(name).as_ref(), Ok(store));
    }
    check("__ns-0000000000000000", &StoreId::Database { number: 0 });
    check("__ns-0000000000000abc", &StoreId::Database { number: 0xabc });
    check("__ns-ffffffffffffffff", &StoreId::Database { number: u64::MAX });
    check("__ms-000000000000012b", &StoreId::Graphite { number: 299 });
    check("__ms-8000000000000000", &StoreId::Graphite { number: 1 << 63 });
    check("anonymous", &StoreId::anonymous());
    for tenant in ["_", "_a", "ns-0000000000000000", "_ns-0000000000000000", "-", "a__ms-0"] {
        check(tenant, &TenantId::new(tenant).unwrap().into());
    }
}

#[test]
fn other_names_are_refused_with_their_fault() {
    #[track_caller]
    fn check(name: &str, text: &str) {
        assert_eq!(parse_store_name(name).unwrap_err().to_string(), text, "{name}");
    }
    let reserved = "tenant id must not be \".\" or \"..\" or start with \"__\"";
    for name in
        ["__", "__x", "__ns", "__ns0000000000000000", "__us-0000000000000000", "__NS-0000000000000000"]
    {
        check(name, reserved);
    }
    check("", "tenant id is empty");
    check("a/b", "tenant id has the character '/'; letters, digits and !-_.*'() are allowed");
    check("..", reserved);
    check("__ns-", "store name has 0 bytes after __ns-, expected 16 hexadecimal digits");
    check("__ns-00", "store name has 2 bytes after __ns-, expected 16 hexadecimal digits");
    check("__ms-00000000000000000", "store name has 17 bytes after __ms-, expected 16 hexadecimal digits");
    let digit = |prefix: &str, found: char| {
        format!(
            "store name has the character {found:?} after {prefix}, expected 16 lowercase hexadecimal digits"
        )
    };
    check("__ns-00000000000000AB", &digit("__ns-", 'A'));
    check("__ns-+000000000000001", &digit("__ns-", '+'));
    check("__ms-000000000000000g", &digit("__ms-", 'g'));
    check("__ms- 00000000000000a", &digit("__ms-", ' '));
    check("__ms-../../../../../.", &digit("__ms-", '.'));
    check("__ns-00000000000000\u{e4}", &digit("__ns-", '\u{e4}'));
}
