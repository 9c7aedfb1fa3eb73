//! An allocator that counts each thread's allocations. Each crate that includes this file uses it as its allocator: the
//! tests on hostile bytes and on allocations, and the fuzz targets.

#![allow(unsafe_code, reason = "an allocator that counts has no other way")]
#![allow(dead_code, reason = "each crate that includes this file uses some of the figures")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static TOTAL: Cell<Allocated> = const { Cell::new(Allocated { count: 0, bytes: 0, peak: 0 }) };
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// The allocations of one thread during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// Number of allocations and of reallocations that grow.
    pub(crate) count: usize,
    /// Bytes allocated, including bytes that were freed.
    pub(crate) bytes: usize,
    /// Peak of the bytes held at a time, without bytes held before.
    pub(crate) peak: usize,
}

/// Runs `run`, and returns this thread's allocations during it.
pub(crate) fn during<T>(run: impl FnOnce() -> T) -> (T, Allocated) {
    let (before, held) = (TOTAL.get(), HELD.get());
    TOTAL.set(Allocated { peak: held, ..before });
    let out = run();
    let after = TOTAL.get();
    TOTAL.set(Allocated { peak: after.peak.max(before.peak), ..after });
    let (count, bytes) = (after.count - before.count, after.bytes - before.bytes);
    (out, Allocated { count, bytes, peak: after.peak - held })
}

fn add(size: usize) {
    let (held, total) = (HELD.get() + size, TOTAL.get());
    HELD.set(held);
    TOTAL.set(Allocated { count: total.count + 1, bytes: total.bytes + size, peak: total.peak.max(held) });
}

/// A thread may free memory that another thread allocated, so the count must not fall below 0.
fn give_back(size: usize) {
    HELD.set(HELD.get().saturating_sub(size));
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    // The old and the new memory exist at the same time while one is copied into the other.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        give_back(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
