//! Shrinks a failing list of operations (delta debugging): removes parts while the rest still fails.
//!
//! Invariants: the result fails with the same kind of message. Not here: shrinking single operations.

use crate::failure::catch_panic;
use crate::op::Op;
use crate::setup::Setup;
use crate::test_env::run_ops;

/// Removes operations that are not needed to fail with a message like `text`; tries at most `tries_max`
/// lists.
#[must_use]
pub fn shrink(setup: &Setup, ops: &[Op], text: &str, tries_max: usize) -> Vec<Op> {
    let wanted = kind_of(text);
    let fails = |ops: &[Op]| match catch_panic(|| run_ops(setup, ops, u64::MAX)) {
        Ok(_) => false,
        Err((_, text)) => kind_of(&text) == wanted,
    };
    let mut kept = ops.to_vec();
    let (mut tries, mut part) = (0, (kept.len() / 2).max(1));
    loop {
        let (mut at, mut is_shorter) = (0, false);
        while at < kept.len() && tries < tries_max {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + part).min(kept.len()));
            tries += 1;
            if fails(&fewer) {
                (kept, is_shorter) = (fewer, true);
            } else {
                at += part;
            }
        }
        if tries >= tries_max || (part == 1 && !is_shorter) {
            return kept;
        }
        part = if is_shorter { part.min(kept.len().max(1)) } else { (part / 2).max(1) };
    }
}

/// Returns the message without location and numbers.
fn kind_of(text: &str) -> String {
    let last = text.rsplit(": ").next().unwrap_or(text);
    last.split_whitespace().filter(|word| word.bytes().all(|b| b.is_ascii_alphabetic())).collect()
}
