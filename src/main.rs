//! The entry point of the program: a C `main` instead of Rust's, for two reasons. Before rlock
//! could record what the caller set up for the command, Rust's runtime would ignore SIGPIPE and
//! open `/dev/null` on closed standard descriptors. It also takes 0.1 ms to start, while a whole
//! run of rlock takes only a few milliseconds.
#![no_main]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// The function that the C runtime calls.
///
/// # Safety
///
/// `arguments` points to `count` pointers to NUL-terminated strings, which live and stay unchanged
/// until the process ends. The C runtime guarantees this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let argument = |index: usize| -> OsString {
        // SAFETY: `index` is below `count`, so the caller guarantees a valid string there.
        let bytes = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_bytes();
        OsStr::from_bytes(bytes).to_owned()
    };
    let count = usize::try_from(count).unwrap_or(0);
    rlock::run((0..count).map(argument).collect()).die_or_status()
}
