//! Layers: views of a source, each as a function of the read on its way down and one of the answer on its way
//! up.
//!
//! Invariant: a layer keeps no state between reads.
//! Not here: sources of their own (`source`).

use super::context::ReadContext;
use super::error::QueryError;
use super::request::Read;
use super::series::{SeriesBatches, SeriesRead};
use super::source::{Opened, Source};

/// View of a source.
pub trait Layer: Send + Sync {
    /// Returns the read of the source below; `None` if it has nothing to answer.
    fn rewrite(&self, read: Read, ctx: &ReadContext) -> Option<Read>;

    /// Returns the answer to `asked`, which was rewritten, from the answer of the source below. By default it
    /// is the same.
    fn map(&self, _asked: &Read, opened: Opened, _ctx: &ReadContext) -> Opened {
        opened
    }
}

impl<L: Layer + ?Sized> Layer for &L {
    fn rewrite(&self, read: Read, ctx: &ReadContext) -> Option<Read> {
        (**self).rewrite(read, ctx)
    }

    fn map(&self, asked: &Read, opened: Opened, ctx: &ReadContext) -> Opened {
        (**self).map(asked, opened, ctx)
    }
}

/// A source seen through a layer.
pub struct Layered<L, S> {
    /// The view.
    pub layer: L,
    /// The source below.
    pub source: S,
}

impl<L: Layer, S: Source> Source for Layered<L, S> {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let asked = read.clone();
        match self.layer.rewrite(read, ctx) {
            None => Ok(Opened::nothing(&asked.wanted)),
            Some(read) => Ok(self.layer.map(&asked, self.source.open(read, ctx)?, ctx)),
        }
    }
}

impl Opened {
    /// The same answer with each of its series mapped.
    #[must_use]
    pub fn map_series(self, map: impl FnMut(SeriesRead) -> SeriesRead + Send + 'static) -> Opened {
        match self {
            Opened::Series(batches) => Opened::Series(map_series(batches, map)),
            other => other,
        }
    }

    /// The same answer with its list mapped.
    #[must_use]
    pub fn map_list(self, map: impl FnOnce(Vec<String>) -> Vec<String> + Send + 'static) -> Opened {
        match self {
            Opened::List(list) => Opened::List(Box::new(move || list().map(map))),
            other => other,
        }
    }
}

/// Returns the series of `batches`, each mapped; their order stays.
#[must_use]
pub fn map_series(
    batches: Box<dyn SeriesBatches>,
    map: impl FnMut(SeriesRead) -> SeriesRead + Send + 'static,
) -> Box<dyn SeriesBatches> {
    Box::new(Mapped { batches, map, batch: Vec::new() })
}

struct Mapped<F> {
    batches: Box<dyn SeriesBatches>,
    map: F,
    batch: Vec<SeriesRead>,
}

impl<F: FnMut(SeriesRead) -> SeriesRead + Send> SeriesBatches for Mapped<F> {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        out.extend(self.batch.drain(..).map(&mut self.map));
        has_more
    }
}
