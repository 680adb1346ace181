//! The same specification gives the same bytes; sizes stay within the limits of a demonstration.

use super::{World, WorldSpec};
use crate::request::Request;
use crate::tally::{Digest, Tally};
use crate::tenant::Tenant;

const END_MS: i64 = 1_763_640_000_000;

fn made(seed: u64, end_ms: i64) -> (Tally, u64) {
    let mut world = World::new(&WorldSpec { seed, end_ms, hours: 1, service_count: 5 });
    let mut tally = Tally::default();
    let mut digest = Digest::default();
    world
        .replay(&mut |request| {
            tally.add(&request);
            digest.add(&request);
            Ok(())
        })
        .expect("nothing is sent");
    (tally, digest.finish())
}

#[test]
fn requests_depend_on_seed_and_end_alone() {
    let hash = made(1, END_MS).1;
    assert_eq!(hash, made(1, END_MS).1);
    assert_eq!(hash, made(1, END_MS + 59_999).1, "the end is rounded down to a minute");
    assert_ne!(hash, made(2, END_MS).1);
    assert_ne!(hash, made(1, END_MS + 60_000).1);
}

#[test]
fn both_tenants_have_all_kinds_of_samples_and_refusals() {
    let (tally, _) = made(1, END_MS);
    for tenant in Tenant::ALL {
        let of = tally.of(tenant);
        let has_all = of.stored.floats > 1000 && of.stored.histograms > 1000 && of.stored.exemplars > 10;
        assert!(has_all && of.refused_count >= 8, "{}: {of:?}", tenant.name());
    }
}

#[test]
fn steps_after_the_history_go_on_where_it_ended() {
    let mut world = World::new(&WorldSpec { seed: 1, end_ms: END_MS, hours: 1, service_count: 5 });
    world.replay(&mut |_| Ok(())).expect("nothing is sent");
    let mut tally = Tally::default();
    let take = &mut |request: Request| {
        tally.add(&request);
        Ok(())
    };
    world.run_step(END_MS + 15_000, take).expect("nothing is sent");
    let shop = tally.of(Tenant::Shop);
    assert_eq!(shop.stored.new_series, 0, "all series are known");
    assert!(shop.stored.histograms > 0 && shop.refused_count > 0, "{shop:?}");
}
