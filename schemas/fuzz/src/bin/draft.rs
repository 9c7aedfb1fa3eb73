#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runlog_schemas_fuzz::draft(bytes));
