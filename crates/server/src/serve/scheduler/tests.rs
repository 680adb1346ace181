//! Work for which there is no thread.

use std::path::Path;
use std::time::Duration;

use chronolith_base::{Disk as _, Env};

use super::*;
use crate::http::tests::Fixture;

const RULES: &str = "groups: [{name: g, interval: 10s, rules: [{record: r, expr: vector(1)}]}]";

/// A thread could not be started, and the group was never evaluated again.
#[test]
fn a_round_without_a_thread_leaves_its_group_in_the_schedule() {
    let (env, clock, disk) = Env::fake(1_700_000_000_000, 1);
    disk.create_dir_all(Path::new("/etc")).expect("a directory");
    disk.write_atomic(Path::new("/etc/rules.yml"), RULES.as_bytes()).expect("written");
    let fixture = Fixture::with_env(env, |options| {
        options.service.rules.files = vec!["/etc/rules.yml".into()];
    });
    let fixture = fixture.open();
    let web = &fixture.web;
    read_rule_files(web).expect("valid");
    let take = || {
        clock.advance(Duration::from_secs(10));
        let mut due = take_due(&web.service);
        assert_eq!(due.len(), 1, "the round is due, and has a permit");
        DueWork::Round(due.remove(0))
    };
    for _ in 0..10 {
        drop(Handed { web: web.clone(), due: Some(take()) });
    }
    let engine = &web.service.rules.engine;
    assert_eq!((engine.running_count(), engine.counters.broken_rounds.get()), (0, 10));
    take().run(web, &RoundSettings::default());
    let groups = web.service.rules.all();
    assert_eq!(groups[0].1.rounds.evaluated, 1);
}
