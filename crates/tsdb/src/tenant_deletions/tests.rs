//! Markers and their failures.

use std::path::Path;

use super::*;

fn id(name: &str) -> TenantId {
    TenantId::new(name).expect("valid")
}

#[test]
fn a_mark_is_durable_or_not_there() {
    for op_count in 0..8 {
        let (env, _clock, disk) = Env::fake(7, 1);
        let deletions = TenantDeletions::open(&env, Path::new("/data")).expect("opens");
        disk.fail_after(op_count);
        let begun = deletions.begin(&id("a"));
        assert_eq!(deletions.admit(&id("a")).is_err(), begun.is_ok(), "operation {op_count}");
        assert!(deletions.admit(&id("b")).is_ok());
        disk.crash();
        let opened = TenantDeletions::open(&env, Path::new("/data")).expect("opens");
        assert!(begun.is_err() || opened.marked() == [id("a")], "operation {op_count}");
    }
}

#[test]
fn a_mark_is_gone_when_the_deletion_has_ended() {
    let (env, _clock, disk) = Env::fake(7, 1);
    let deletions = TenantDeletions::open(&env, Path::new("/data")).expect("opens");
    deletions.begin(&id("a")).expect("marked");
    let Some(DeletionState::Running(_)) = deletions.state_of(&id("a")) else { panic!("running") };
    deletions.finish(&id("a")).expect("ended");
    let Some(DeletionState::Done(progress)) = deletions.state_of(&id("a")) else { panic!("done") };
    assert_eq!(progress.ended_ms, Some(7));
    assert!(deletions.admit(&id("a")).is_ok());
    disk.crash();
    let opened = TenantDeletions::open(&env, Path::new("/data")).expect("opens");
    assert_eq!((opened.marked(), opened.state_of(&id("a"))), (Vec::new(), None));
}
