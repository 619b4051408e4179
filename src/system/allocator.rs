//! The memory allocator of static builds. musl's own maps and unmaps memory many times per run.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::Dlmalloc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator(Mutex::new(Dlmalloc::new()));

/// dlmalloc behind a mutex of std, because the crate's own uses that of musl, which is slower.
struct Allocator(Mutex<Dlmalloc>);

impl Allocator {
    fn lock(&self) -> MutexGuard<'_, Dlmalloc> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Out of line. Otherwise the compiler would inline these at a hundred call sites, and the binary
// would grow by 120 KB.
//
// SAFETY: every method only calls the same method of dlmalloc, whose promises are the same, one at
// a time. None allocates from this allocator or panics.
unsafe impl GlobalAlloc for Allocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the method requires.
        unsafe { self.lock().malloc(layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.lock().calloc(layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.lock().free(memory, layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.lock().realloc(memory, layout.size(), layout.align(), size) }
    }
}
