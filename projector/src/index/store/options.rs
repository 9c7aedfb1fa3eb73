//! RocksDB's options.

use super::Budget;

/// The size of a table's index and filter blocks.
const METADATA_BLOCK_BYTES: usize = 8 << 10;
/// The filter of a memtable, bytes. Some 20 bits a row where a memtable has the rows of 50,000 records.
const MEMTABLE_FILTER_BYTES: f64 = 800e3;

/// New tables that are compacted together.
const L0_TABLES: i32 = 8;

/// The options of a store on this budget.
pub(super) fn of(budget: &Budget) -> rocksdb::Options {
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
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&budget.buffers);
    options.set_write_buffer_size(budget.memtable_bytes());
    options.set_max_write_buffer_number(3);
    // Most ids that are looked up are new: the filter answers without walking the memtable.
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_BYTES / budget.memtable_bytes() as f64);
    // A flushed table is read once, to be compacted: it is compressed there.
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    options.set_compression_per_level(&[rocksdb::DBCompressionType::None, rocksdb::DBCompressionType::Lz4]);
    options.set_level_compaction_dynamic_level_bytes(true);
    // Run ids are random: each compaction of new tables rewrites the whole next level, so it waits for twice the usual number.
    options.set_level_zero_file_num_compaction_trigger(L0_TABLES);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_keep_log_file_num(2);
    options.set_bytes_per_sync(1 << 20);
    // Of a folder that an older version wrote with a write-ahead log: a power cut may have lost the end of it, and
    // nothing written after a lost part may survive. What is lost is folded again from the log.
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    options
}
