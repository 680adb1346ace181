//! Sources whose requests go out in order over one connection.
//!
//! Invariant: a series belongs to one shard, so its samples are sent in order of time, the backlog aside.

use anyhow::Result;

use crate::column::{Column, Source};
use crate::request::{Request, WriteBuilder};
use crate::tenant::Tenant;
use crate::timeline::Step;
use crate::warehouse::Warehouse;

/// Takes requests in their order.
pub(crate) type Emit<'a> = dyn FnMut(Request) -> Result<()> + 'a;

/// Sources of one sender.
pub(crate) struct Shard {
    sources: Vec<Box<dyn Source>>,
    warehouse: Option<Warehouse>,
    builder: WriteBuilder,
}

impl Shard {
    pub(crate) fn new() -> Shard {
        Shard { sources: Vec::new(), warehouse: None, builder: WriteBuilder::new(Tenant::Shop) }
    }

    pub(crate) fn add(&mut self, source: impl Source + 'static) {
        self.sources.push(Box::new(source));
    }

    pub(crate) fn set_warehouse(&mut self, warehouse: Warehouse) {
        self.warehouse = Some(warehouse);
    }

    /// Sources of one tenant next to each other, for full requests.
    pub(crate) fn sort(&mut self) {
        self.sources.sort_by_key(|source| source.tenant());
    }

    /// Emits the samples of `steps`.
    pub(crate) fn run(&mut self, steps: &[Step], emit: &mut Emit<'_>) -> Result<()> {
        for source in &mut self.sources {
            steps.iter().for_each(|step| source.advance(step));
            push_all(&mut self.builder, source.tenant(), source.columns(), emit)?;
        }
        flush(&mut self.builder, emit)?;
        if let Some(warehouse) = &mut self.warehouse {
            steps.iter().for_each(|step| warehouse.advance(step));
            warehouse.take().into_iter().try_for_each(emit)?;
        }
        Ok(())
    }

    /// Emits the samples that are sent after all others.
    pub(crate) fn run_backlog(&mut self, emit: &mut Emit<'_>) -> Result<()> {
        for source in &mut self.sources {
            push_all(&mut self.builder, source.tenant(), source.backlog(), emit)?;
        }
        flush(&mut self.builder, emit)
    }
}

fn push_all(
    builder: &mut WriteBuilder,
    tenant: Tenant,
    columns: &mut [Column],
    emit: &mut Emit<'_>,
) -> Result<()> {
    for column in columns.iter_mut().filter(|column| !column.is_empty()) {
        if builder.tenant() != tenant {
            flush(builder, emit)?;
            *builder = WriteBuilder::new(tenant);
        }
        builder.push(column);
        if builder.is_full() {
            flush(builder, emit)?;
        }
    }
    Ok(())
}

fn flush(builder: &mut WriteBuilder, emit: &mut Emit<'_>) -> Result<()> {
    builder.take().map_or(Ok(()), emit)
}
