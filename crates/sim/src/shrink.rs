//! Making a failing list of operations short: parts are left out as long as it still fails.
//! Holds: what is given back fails in the same way. Not here: making single operations smaller.

use crate::op::Op;
use crate::runner::catch;
use crate::setup::Setup;
use crate::world::run_ops;

/// Leaves out of `ops`, which fail with `text`, what is not needed, trying at most `tries_max` lists.
#[must_use]
pub fn shrink(setup: &Setup, ops: &[Op], text: &str, tries_max: usize) -> Vec<Op> {
    let wanted = kind_of(text);
    let fails = |ops: &[Op]| match catch(|| run_ops(setup, ops, u64::MAX)) {
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

/// What went wrong, without where and when.
fn kind_of(text: &str) -> String {
    let last = text.rsplit(": ").next().unwrap_or(text);
    last.split_whitespace().filter(|word| word.bytes().all(|b| b.is_ascii_alphabetic())).collect()
}
