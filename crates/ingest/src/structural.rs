//! Structural bytes of a text protocol: bitmap per block of 64 bytes, walked bit by bit.
//!
//! Invariant: every byte of the class is found, in ascending order.
//! Not here: the classes, which the protocols define, and the meaning of a byte, which depends on the token.

use std::marker::PhantomData;

/// Bytes per bitmap.
const BLOCK_BYTES: usize = 64;
/// Multiplier that gathers the lowest bits of eight bytes in the highest byte.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// Bytes at which the parser of a protocol stops.
pub(crate) trait ByteClass {
    /// Returns 1 if the byte is structural, otherwise 0. Without branches: it becomes vector compares.
    fn flag(byte: u8) -> u8;
}

/// Iterator over the offsets of structural bytes.
pub(crate) struct StructuralBytes<'a, C> {
    bytes: &'a [u8],
    /// Offset of the block.
    block: usize,
    /// Structural bytes of the block that are not visited yet.
    bits: u64,
    class: PhantomData<C>,
}

// PERF: generic over the class, so that `flag` is inlined into the loop over a block.
impl<'a, C: ByteClass> StructuralBytes<'a, C> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        StructuralBytes { bytes, block: 0, bits: bits_at::<C>(bytes, 0), class: PhantomData }
    }

    /// Returns the offset of the next structural byte, or the length of the bytes.
    // PERF: inlined into the walk over a line, which calls it at ten places.
    //   cargo bench -p chronolith-ingest --bench line_speed
    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        while self.bits == 0 {
            let block = self.block.saturating_add(BLOCK_BYTES);
            if block >= self.bytes.len() {
                return self.bytes.len();
            }
            self.block = block;
            self.bits = bits_at::<C>(self.bytes, block);
        }
        let at = self.block + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        at
    }

    /// Continues at `offset`.
    pub(crate) fn seek(&mut self, offset: usize) {
        self.block = offset - offset % BLOCK_BYTES;
        self.bits = bits_at::<C>(self.bytes, self.block) & (u64::MAX << (offset % BLOCK_BYTES));
    }
}

/// Returns the bitmap of the block at `block`; bytes after the end are not structural.
#[inline]
fn bits_at<C: ByteClass>(bytes: &[u8], block: usize) -> u64 {
    let rest = bytes.get(block..).unwrap_or(&[]);
    if let Some(full) = rest.first_chunk::<BLOCK_BYTES>() {
        return bits_of::<C>(full);
    }
    let mut padded = [0; BLOCK_BYTES];
    padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    bits_of::<C>(&padded)
}

/// Returns one bit per byte, set if the byte is structural.
// PERF: the loop has no branches, so the compiler turns it into 16-byte compares; a table lookup per byte
// takes four times as long. cargo bench -p chronolith-ingest --bench line_speed
#[inline]
fn bits_of<C: ByteClass>(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut flags = [0u8; BLOCK_BYTES];
    for (flag, &byte) in flags.iter_mut().zip(block) {
        *flag = C::flag(byte);
    }
    let mut bits = 0;
    for (idx, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
        bits |= (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * idx);
    }
    bits
}

#[cfg(test)]
mod tests {
    use chronolith_base::Rng;

    use super::*;

    struct Delimiters;

    impl ByteClass for Delimiters {
        fn flag(byte: u8) -> u8 {
            u8::from(byte == b'\n') | u8::from(byte == b' ') | u8::from(byte == b'=') | (byte >> 7)
        }
    }

    #[test]
    fn all_structural_bytes_are_found_from_any_offset() {
        let rng = Rng::from_seed(5);
        for len in 0..300 {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            let is_structural = |byte: u8| b"\n =".contains(&byte) || byte >= 0x80;
            for start in (0..=len).step_by(7) {
                let mut found = Vec::new();
                let mut walk = StructuralBytes::<Delimiters>::new(&bytes);
                walk.seek(start);
                loop {
                    match walk.next() {
                        at if at == len => break,
                        at => found.push(at),
                    }
                }
                let want: Vec<usize> = (start..len).filter(|&at| is_structural(bytes[at])).collect();
                assert_eq!(found, want);
            }
        }
    }
}
