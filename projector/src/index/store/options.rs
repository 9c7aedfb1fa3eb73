//! RocksDB's options.

use super::{Area, Budget};

/// The size of a table's index and filter blocks.
const METADATA_BLOCK_BYTES: usize = 8 << 10;
/// The filter of a memtable of runs, bytes. Some 20 bits a row where a memtable has the rows of 50,000 records.
const MEMTABLE_FILTER_BYTES: f64 = 800e3;

/// The memtable of a small area may reach this part of the one of runs.
const SMALL_SHARE: usize = 4;
/// The blocks that the memtables of small areas grow by: a partition that gets no records has one of each.
const SMALL_BLOCK_BYTES: usize = 128 << 10;

/// New tables that are compacted together.
const L0_TABLES: i32 = 8;

/// A table's size. New rows come at the end of a column family, and a compaction rewrites the tables that they overlap: the
/// smaller, the less.
const FILE_BYTES: u64 = 16 << 20;
const EVENTS_FILE_BYTES: u64 = 4 << 20;

/// The options of an area of a store on this budget. Those of the whole database are the default area's.
pub(super) fn of(budget: &Budget, area: Area) -> rocksdb::Options {
    let mut table = rocksdb::BlockBasedOptions::default();
    table.set_block_cache(&budget.cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    // Partitioned: the blocks in use stay in the cache. A table's whole filter, a megabyte, would be read and verified
    // again for nearly every id that is looked up.
    table.set_index_type(rocksdb::BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_block_size(16 << 10);
    table.set_format_version(5);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    // Rows of runs, all others and the offset that they reflect reach the disk together.
    options.set_atomic_flush(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&budget.buffers);
    let share = if area == Area::Runs { 1 } else { SMALL_SHARE };
    options.set_write_buffer_size(budget.memtable_bytes() / share);
    options.set_max_write_buffer_number(3);
    // Most ids that are looked up are new: the filter answers without walking the memtable.
    options.set_memtable_whole_key_filtering(true);
    let filter_bytes = if area == Area::Runs { MEMTABLE_FILTER_BYTES } else { 0.0 };
    options.set_memtable_prefix_bloom_ratio(filter_bytes / budget.memtable_bytes() as f64);
    if area != Area::Runs {
        options.set_arena_block_size(SMALL_BLOCK_BYTES);
    }
    // A flushed table is read once, to be compacted: it is compressed there.
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    options.set_compression_per_level(&[rocksdb::DBCompressionType::None, rocksdb::DBCompressionType::Lz4]);
    options.set_level_compaction_dynamic_level_bytes(true);
    // What a compaction rewrites of the next level is about the same, whatever the number of new tables.
    options.set_level_zero_file_num_compaction_trigger(L0_TABLES);
    // One flushes, and as many as there are cores compact: with one for all partitions, tables pile up until writes stall.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.set_max_background_jobs(i32::try_from(cores).unwrap_or(i32::MAX).saturating_add(1));
    options.set_target_file_size_base(match area {
        Area::Events => EVENTS_FILE_BYTES,
        Area::Default | Area::Runs => FILE_BYTES,
    });
    options.set_max_open_files(512);
    options.set_keep_log_file_num(2);
    options.set_bytes_per_sync(1 << 20);
    // Of a folder that an older version wrote with a write-ahead log: a power cut may have lost the end of it, and
    // nothing written after a lost part may survive. What is lost is folded again from the log.
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    options
}
