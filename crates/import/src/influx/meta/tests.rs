//! Messages built by hand, and damage.

use super::*;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8][..], bytes].concat()
}

fn message() -> Vec<u8> {
    let group = |deleted: u8, shard: u8| {
        // Id, start, end, deleted, and a shard with its owner.
        let shard = field(5, &[&[1 << 3, shard][..], &field(3, &[1 << 3, 1])].concat());
        field(5, &[&[1 << 3, 9, 2 << 3, 1, 3 << 3, 2, 4 << 3, deleted][..], &shard].concat())
    };
    // Duration of two hours.
    let hours = [2 << 3, 0x80, 0x80, 0xc5, 0x8b, 0xc6, 0xd1, 0x01];
    let policy =
        [&field(1, b"two")[..], &hours, &[3 << 3, 7, 4 << 3, 1], &group(0, 4), &group(5, 6)].concat();
    let query = [field(1, b"cq"), field(2, b"CREATE ...")].concat();
    let database = [field(1, b"d"), field(2, b"two"), field(3, &policy), field(4, &query)].concat();
    let privilege = [&field(1, b"d")[..], &[2 << 3, 3]].concat();
    let user = [&field(1, b"u")[..], &field(2, b"$2a$10$"), &[3 << 3, 1], &field(4, &privilege)].concat();
    [&[1 << 3, 0, 2 << 3, 8][..], &field(5, &database), &field(6, &user)].concat()
}

#[test]
fn databases_and_users_are_read() {
    let meta = Meta::decode(&message()).unwrap();
    let policy = MetaPolicy {
        name: "two".to_owned(),
        duration_ns: 7_200_000_000_000,
        shard_group_ns: 7,
        replica_count: 1,
        // The group of shard 6 is deleted.
        shards: vec![4],
    };
    let database = MetaDatabase {
        name: "d".to_owned(),
        default_policy: "two".to_owned(),
        policies: vec![policy],
        continuous_queries: vec![("cq".to_owned(), "CREATE ...".to_owned())],
    };
    let user = MetaUser { name: "u".to_owned(), is_admin: true, privileges: vec![("d".to_owned(), 3)] };
    assert_eq!(meta, Meta { databases: vec![database], users: vec![user] });
}

#[test]
fn unknown_fields_are_skipped() {
    let mut bytes = message();
    bytes.extend_from_slice(&[15 << 3, 1]);
    bytes.extend_from_slice(&[[14 << 3 | 1].as_slice(), &[0; 8]].concat());
    bytes.extend_from_slice(&[[13 << 3 | 5].as_slice(), &[0; 4]].concat());
    assert_eq!(Meta::decode(&bytes), Meta::decode(&message()));
}

#[test]
fn damage_is_an_error_or_another_message() {
    let bytes = message();
    let mut readable = 0;
    for end in 0..bytes.len() {
        readable += usize::from(Meta::decode(&bytes[..end]).is_ok());
    }
    // Only cuts between the fields of the outermost message.
    assert_eq!(readable, 4);
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let _ = Meta::decode(&damaged);
    }
    assert!(Meta::decode(&field(5, &field(1, b"\xff"))).is_err(), "a name that is not UTF-8");
    assert!(Meta::decode(&[5 << 3 | 3]).is_err(), "a group");
}
