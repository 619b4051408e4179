//! The allocator of static builds. The one of musl maps and unmaps memory many times in each run.

use std::alloc::{GlobalAlloc, Layout};

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: NeverInlined = NeverInlined;

/// Calls dlmalloc. The compiler would otherwise copy it to a hundred places that allocate, and the
/// binary would grow by 120 KB.
struct NeverInlined;

// SAFETY: every method only calls the same method of an allocator.
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
