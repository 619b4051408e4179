#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rlock_fuzz::words(bytes));
