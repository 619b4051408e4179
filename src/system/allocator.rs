//! The memory allocator of static builds. musl's own maps and unmaps memory many times per run.

use std::alloc::{GlobalAlloc, Layout};

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: NeverInlined = NeverInlined;

/// Calls dlmalloc out of line. Otherwise the compiler would inline it at a hundred call sites, and
/// the binary would grow by 120 KB.
struct NeverInlined;

// SAFETY: every method only calls the same method of another allocator.
unsafe impl GlobalAlloc for NeverInlined {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the method requires.
        unsafe { GlobalDlmalloc.alloc(layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { GlobalDlmalloc.alloc_zeroed(layout) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { GlobalDlmalloc.dealloc(memory, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { GlobalDlmalloc.realloc(memory, layout, size) }
    }
}
