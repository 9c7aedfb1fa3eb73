//! RocksDB's options.

use super::{budget::Budget, on_disk::ColumnFamilyName};

/// The size of a table's index and filter blocks.
const METADATA_BLOCK_BYTES: usize = 8 << 10;
/// The filter of a memtable of runs, bytes: some 20 bits a row if a memtable has the rows of 50,000 records.
const MEMTABLE_FILTER_BYTES: f64 = 800e3;

/// A small column family's memtable may reach this part of the size of the runs' memtable.
const SMALL_SHARE: usize = 4;
/// The size of the blocks by which memtables of small column families grow. A partition without records has one block of
/// each.
const SMALL_BLOCK_BYTES: usize = 128 << 10;

/// New tables that are compacted together.
const L0_TABLES: i32 = 8;

/// The size of a table. New rows are at the end of a column family, and a compaction rewrites the tables that they overlap:
/// smaller tables mean less rewriting.
const FILE_BYTES: u64 = 16 << 20;
const EVENTS_FILE_BYTES: u64 = 4 << 20;

/// The size at which RocksDB flushes a column family's memtable. `runs` is that size for the memtable of runs.
pub(super) fn memtable_bytes(runs: usize, cf: ColumnFamilyName) -> usize {
    if cf == ColumnFamilyName::Runs { runs } else { runs / SMALL_SHARE }
}

/// Builds the options of a column family of a store with this budget. The default column family's options also apply to the
/// whole database.
pub(super) fn build(budget: &Budget, cf: ColumnFamilyName) -> rocksdb::Options {
    let mut table = rocksdb::BlockBasedOptions::default();
    table.set_block_cache(&budget.cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    // Partitioned, so that the blocks in use stay in the cache. Otherwise a table's whole filter, a megabyte, would be read
    // and verified again for nearly every looked-up id.
    table.set_index_type(rocksdb::BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_block_size(16 << 10);
    table.set_format_version(5);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    // Writes all column families' rows, and the offset that they reflect, to disk together.
    options.set_atomic_flush(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&budget.buffers);
    options.set_write_buffer_size(memtable_bytes(budget.memtable_bytes(), cf));
    options.set_max_write_buffer_number(3);
    // Most ids that are looked up are new: the filter answers without walking the memtable.
    options.set_memtable_whole_key_filtering(true);
    let filter_bytes = if cf == ColumnFamilyName::Runs { MEMTABLE_FILTER_BYTES } else { 0.0 };
    options.set_memtable_prefix_bloom_ratio(filter_bytes / budget.memtable_bytes() as f64);
    if cf != ColumnFamilyName::Runs {
        options.set_arena_block_size(SMALL_BLOCK_BYTES);
    }
    // A flushed table is read only once, by a compaction, which compresses it.
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    options.set_compression_per_level(&[rocksdb::DBCompressionType::None, rocksdb::DBCompressionType::Lz4]);
    options.set_level_compaction_dynamic_level_bytes(true);
    // A compaction rewrites about the same part of the next level, independent of the number of new tables.
    options.set_level_zero_file_num_compaction_trigger(L0_TABLES);
    // One job for flushes, and one per core for compactions: with only one compaction for all partitions, tables would
    // accumulate until writes stall.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.set_max_background_jobs(i32::try_from(cores).unwrap_or(i32::MAX).saturating_add(1));
    options.set_target_file_size_base(match cf {
        ColumnFamilyName::Events => EVENTS_FILE_BYTES,
        ColumnFamilyName::Default | ColumnFamilyName::Runs => FILE_BYTES,
    });
    options.set_max_open_files(512);
    options.set_keep_log_file_num(2);
    options.set_bytes_per_sync(1 << 20);
    // For a folder that an older version wrote with a write-ahead log. A power cut may have lost the end of that log; later
    // writes must not survive either. The fold applies the lost records again.
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    options
}
