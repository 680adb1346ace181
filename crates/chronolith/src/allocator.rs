//! jemalloc with its settings (ADR 0055). Invariant: threads of its own return pages that were unused for a
//! second, whether or not any caller allocates.
#![expect(unsafe_code, reason = "jemalloc reads its settings from a symbol of this name")]

use std::ffi::c_char;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// SAFETY: the symbol has the type that jemalloc declares, a pointer to a text that ends in NUL; `Option` of a
// reference has the layout of that pointer.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static SETTINGS: Option<&'static c_char> = {
    let text = c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
    // SAFETY: the pointer refers to a static text.
    Some(unsafe { &*text.as_ptr() })
};
