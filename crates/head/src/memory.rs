//! Where the head's memory is, by part and by tenant.
//!
//! Holds: bytes are those that collections have allocated, in use or not; what the allocator adds to each piece is in
//! none of them. Cost: a look at each stripe and tenant, none at series.
//! Not here: what the other crates keep (`tsdb`, `server`), which of it is resident (the operating system says).

use chronolith_model::TenantId;

use crate::head::Head;
use crate::stripe::Hot;

/// A consumer of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPart {
    /// What it is, in lower case with underscores.
    pub name: &'static str,
    /// Bytes allocated.
    pub bytes: u64,
    /// How many things they hold.
    pub count: u64,
}

impl MemoryPart {
    /// A part.
    #[must_use]
    pub fn new(name: &'static str, bytes: u64, count: u64) -> MemoryPart {
        MemoryPart { name, bytes, count }
    }
}

/// What one tenant has in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMemory {
    /// Who.
    pub tenant: TenantId,
    /// Its series.
    pub series_count: u64,
    /// Labels and tables, which are its own, and its share by series of what all tenants share.
    pub bytes: u64,
}

/// Adds `parts` to those of the same name in `sums`.
fn add_parts(sums: &mut Vec<MemoryPart>, parts: impl IntoIterator<Item = MemoryPart>) {
    for part in parts {
        match sums.iter_mut().find(|sum| sum.name == part.name) {
            Some(sum) => (sum.bytes, sum.count) = (sum.bytes + part.bytes, sum.count + part.count),
            None => sums.push(part),
        }
    }
}

impl Head {
    /// All parts, each once.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.shared_memory();
        for tenant in self.all_tenants() {
            add_parts(&mut parts, tenant.tables.read().memory());
        }
        parts
    }

    /// The `limit` tenants with most.
    #[must_use]
    pub fn memory_by_tenant(&self, limit: usize) -> Vec<TenantMemory> {
        let shared_bytes: u64 = self.shared_memory().iter().map(|part| part.bytes).sum();
        let mut out = Vec::new();
        for tenant in self.all_tenants() {
            let tables = tenant.tables.read();
            let bytes = tables.memory().iter().map(|part| part.bytes).sum();
            out.push(TenantMemory {
                tenant: tenant.id.clone(),
                series_count: tables.live_count() as u64,
                bytes,
            });
        }
        let all_count = out.iter().map(|one| one.series_count).sum::<u64>().max(1);
        for one in &mut out {
            let share = u128::from(shared_bytes) * u128::from(one.series_count) / u128::from(all_count);
            one.bytes += u64::try_from(share).unwrap_or(u64::MAX);
        }
        out.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tenant.cmp(&b.tenant)));
        out.truncate(limit);
        out
    }

    /// What belongs to no tenant alone.
    fn shared_memory(&self) -> Vec<MemoryPart> {
        let mut parts = Vec::new();
        for stripe in &self.series.stripes {
            add_parts(&mut parts, stripe.lock().memory());
        }
        add_parts(&mut parts, self.raw_keys.read().memory());
        parts.push(MemoryPart::new("wal_buffers", self.wal.buffer_bytes(), 1));
        parts.push(self.series.store.memory());
        let scratch = self.scratch.lock();
        let scratch_bytes = scratch.iter().map(|one| one.heap_bytes() as u64).sum();
        parts.push(MemoryPart::new("append_scratch", scratch_bytes, scratch.len() as u64));
        parts
    }
}

const _: () = assert!(size_of::<Hot>() == 64, "parts are compared with series by people");
