//! Computes a run's partition like Kafka's default partitioner, so that a foreign client with the run id as key uses the same
//! partition.

use crate::id::{PartitionId, RunId};

/// Kafka's murmur2 (`org.apache.kafka.common.utils.Utils.murmur2`), seed 0x9747b28c.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = 0x9747_b28c ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * index);
        }
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

/// Returns the partition of `run_id` in a journal with `partitions` partitions: the count of its genesis, never the live count.
pub fn partition_of(run_id: RunId<&str>, partitions: u32) -> PartitionId {
    PartitionId::of_hash(murmur2(run_id.as_bytes()), partitions)
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    /// The vectors of Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn murmur2_equals_kafkas() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }
}
