//! The environment exactly as the caller passed it. The standard library would copy it, and leave
//! out entries that are not variables.

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    /// The entries, with a null pointer at the end. The C runtime sets this before `main`.
    static environ: *const *const c_char;
}

/// The entries in the caller's order, usually in the form NAME=value.
pub(crate) fn inherited() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: rlock never changes its environment, so the array and its strings stay as they are
    // until the process ends.
    let mut next = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: `next` is null if the environment is missing. Otherwise it points into the array,
        // because it never moves past the null pointer at the end.
        let entry = unsafe { *next.as_ref()? };
        if entry.is_null() {
            return None;
        }
        // SAFETY: this entry is not the end of the array, and it is a NUL-terminated string.
        unsafe {
            next = next.add(1);
            Some(CStr::from_ptr(entry))
        }
    })
}

pub(crate) fn is_named(entry: &CStr, name: &str) -> bool {
    let value = entry.to_bytes().strip_prefix(name.as_bytes());
    value.is_some_and(|value| value.starts_with(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_name_only_with_its_equals_sign() {
        assert!(is_named(c"A=", "A") && is_named(c"A=1=2", "A"));
        assert!(!is_named(c"AB=1", "A") && !is_named(c"A", "A") && !is_named(c"", "A"));
    }
}
