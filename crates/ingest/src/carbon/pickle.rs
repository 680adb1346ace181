//! Pickle protocol: frames of a 4-byte length and a pickled list of `(path, (time, value))`.
//!
//! Invariants: nothing but lists, tuples, texts and numbers is made, so no class and no function of Python is
//! ever looked up; memory is a fixed multiple of the frame, references of the memo included.
//! Not here: sockets (`server`).

#[cfg(test)]
pub(super) mod fixtures;
mod frame;
mod machine;
mod opcode;
mod text;
mod value;

use super::points::{PointWriter, check_path};
use super::refused::RefusedReason;
use super::{float, time};

use machine::Machine;
use value::Value;

pub use frame::{FRAME_BYTES_MAX, FrameBuffer, FrameTooLong};
pub use opcode::{PickleError, PickleFault};

/// Bytes of paths per byte of a frame at most: the memo may name one path for many points.
const PATH_EXPANSION_MAX: usize = 32;
/// Bytes of paths that a small frame may have.
const PATH_BYTES_MIN: usize = 64 << 10;

/// Reader of pickled frames; keeps its memory between frames.
#[derive(Default)]
pub struct PickleDecoder {
    machine: Machine,
}

impl PickleDecoder {
    /// A reader without memory.
    #[must_use]
    pub fn new() -> PickleDecoder {
        PickleDecoder::default()
    }

    /// Appends the points of a frame, without its length, to `points`. Elements that are not points are
    /// refused alone; numbers may be texts.
    ///
    /// # Errors
    /// [`PickleError`] if the frame is not a pickle of a list or tuple; no point is appended, and it is
    /// counted as [`RefusedReason::BadPickle`]. The connection can go on with the next frame.
    ///
    /// # Panics
    /// If the frame is larger than [`super::INPUT_BYTES_MAX`], or the batch has more than
    /// [`super::BATCH_BYTES_MAX`] bytes of wire keys.
    pub fn decode(&mut self, frame: &[u8], points: &mut PointWriter<'_>) -> Result<(), PickleError> {
        let outcome = self.machine.run(frame);
        if let Ok(list) = outcome {
            push_points(&self.machine, frame, list, points);
        }
        self.machine.release();
        outcome.map(|_| ()).inspect_err(|error| {
            points.refuse(RefusedReason::BadPickle, error.to_string().as_bytes());
        })
    }

    /// Bytes that the reader keeps on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.machine.heap_bytes()
    }
}

/// Pushes the elements of a sequence.
fn push_points(machine: &Machine, frame: &[u8], list: Value, points: &mut PointWriter<'_>) {
    let base = points.begin(frame);
    let mut path_bytes_left = (frame.len() * PATH_EXPANSION_MAX).max(PATH_BYTES_MIN);
    for element in machine.elements(list) {
        if let Err(reason) = push_point(machine, frame, base, element, &mut path_bytes_left, points) {
            let text = machine.describe(frame, element);
            points.refuse(reason, text.as_bytes());
        }
    }
}

fn push_point(
    machine: &Machine,
    frame: &[u8],
    base: usize,
    element: Value,
    path_bytes_left: &mut usize,
    points: &mut PointWriter<'_>,
) -> Result<(), RefusedReason> {
    let [path, pair] = machine.pair(element).ok_or(RefusedReason::BadTuple)?;
    let [time, value] = machine.pair(pair).ok_or(RefusedReason::BadTuple)?;
    let Value::Text(range) = path else { return Err(RefusedReason::BadTuple) };
    let path = machine.text_of(frame, range);
    *path_bytes_left = path_bytes_left.checked_sub(path.len()).ok_or(RefusedReason::LineTooLong)?;
    let path = check_path(path)?;
    let value = number(machine, frame, value).ok_or(RefusedReason::BadValue)?;
    let time = number(machine, frame, time).ok_or(RefusedReason::BadTime)?;
    if value.is_nan() {
        return Err(RefusedReason::Nan);
    }
    let time_ms = time::from_number(time, points.now_ms())?;
    let start = range.start as usize;
    let end = range.end as usize;
    if points.keeps_paths() && end <= frame.len() && !path.may_have_tags {
        points.push_kept(base + start..base + end, value, time_ms);
    } else {
        points.push_checked(&path, value, time_ms);
    }
    Ok(())
}

/// Returns the value of a number, or of a text as `float()` reads it.
fn number(machine: &Machine, frame: &[u8], value: Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number),
        Value::Text(range) => float::parse(machine.text_of(frame, range)),
        Value::Sequence(_) | Value::Other => None,
    }
}

#[cfg(test)]
mod tests;
