//! The program's entry. A C `main` instead of Rust's, for two reasons: Rust's runtime would turn
//! SIGPIPE off and open `/dev/null` on closed standard descriptors before we could see what the
//! caller had set up for the command, and its start costs 0.1 ms of a program that takes about 1.
#![no_main]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// The C runtime's way in.
///
/// # Safety
///
/// `arguments` points to `count` pointers to NUL-terminated strings, which live and stay unchanged
/// until the process ends. The C runtime sees to that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let argument = |index: usize| -> OsString {
        // SAFETY: `index` is below `count`, for which our caller vouches.
        let bytes = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_bytes();
        OsStr::from_bytes(bytes).to_owned()
    };
    let count = usize::try_from(count).unwrap_or(0);
    rlock::run((0..count).map(argument).collect()).leave()
}
