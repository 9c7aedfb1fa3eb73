//! Packs bodies into blocks.

use super::{
    Reference,
    cache::{Bodies, BodyMemory},
};
use std::{io, mem, sync::Arc};

/// A block ends before the body that would make it longer, bytes of bodies. A lookup decompresses one block.
const BLOCK_BYTES: usize = 16 << 10;
/// The lengths before a block's frame, bytes.
pub(super) const LENGTHS_BYTES: usize = 8;

/// Blocks that are not written yet.
pub(in super::super) struct Blocks {
    memory: Arc<BodyMemory>,
    /// The position in the file of the first byte of `out`.
    start: u64,
    out: Vec<u8>,
    /// The bodies of the block that has not ended.
    bodies: Vec<u8>,
    /// The ended blocks, if they are kept.
    ended: Option<Vec<(u64, Bodies)>>,
}

impl Blocks {
    /// No blocks; the first one will be at this position. If `keeps`, ended blocks are returned by [`Blocks::take`].
    pub(super) fn new(memory: Arc<BodyMemory>, start: u64, keeps: bool) -> Self {
        let ended = keeps.then(Vec::new);
        Self { memory, start, out: Vec::new(), bodies: Vec::new(), ended }
    }

    /// Adds a body.
    pub(super) fn push(&mut self, body: &[u8]) -> io::Result<Reference> {
        if !self.bodies.is_empty() && self.bodies.len() + body.len() > BLOCK_BYTES {
            self.end_block()?;
        }
        let at = Reference { block: self.position(), start: self.bodies.len(), length: body.len() };
        self.bodies.extend_from_slice(body);
        Ok(at)
    }

    /// The position in the file of the next block.
    fn position(&self) -> u64 {
        self.start + self.out.len() as u64
    }

    /// Bytes of ended blocks.
    pub(super) fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Compresses the last block.
    pub(super) fn end_block(&mut self) -> io::Result<()> {
        if self.bodies.is_empty() {
            return Ok(());
        }
        let (position, from) = (self.position(), self.out.len());
        self.out.extend_from_slice(&[0; LENGTHS_BYTES]);
        self.memory.compress(&self.bodies, &mut self.out)?;
        let frame = self.out.len() - from - LENGTHS_BYTES;
        for (at, length) in [(from, frame), (from + 4, self.bodies.len())] {
            let length = u32::try_from(length).map_err(io::Error::other)?;
            self.out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        match &mut self.ended {
            Some(ended) => {
                let bodies = mem::replace(&mut self.bodies, Vec::with_capacity(BLOCK_BYTES));
                ended.push((position, Arc::new(bodies)));
            }
            None => self.bodies.clear(),
        }
        Ok(())
    }

    /// Removes the ended blocks.
    pub(super) fn take(&mut self) -> Ended {
        let (start, bytes) = (self.start, mem::take(&mut self.out));
        self.start += bytes.len() as u64;
        Ended { start, bytes, bodies: self.ended.as_mut().map(mem::take).unwrap_or_default() }
    }
}

/// Ended blocks.
pub(super) struct Ended {
    /// Their position in the file.
    pub(super) start: u64,
    /// Their bytes in the file.
    pub(super) bytes: Vec<u8>,
    /// Their positions and bodies, if they are kept.
    pub(super) bodies: Vec<(u64, Bodies)>,
}
