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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chronolith_base::ManualClock;

    use super::*;
    use crate::query::{LabelValueScan, Queryable, Selector, SoleLabelValues, Wanted};
    use crate::{Matcher, TimeRange};

    /// A source that lists the ranges it is asked for.
    struct Ranges;

    impl Source for Ranges {
        fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
            Ok(match read.wanted {
                Wanted::LabelNames | Wanted::LabelValues { .. } => {
                    Opened::listed(vec![format!("{:?} {:?}", read.request.matchers, read.request.range)])
                }
                wanted => Opened::nothing(&wanted),
            })
        }
    }

    /// Asks for the time before 10, and numbers the entries of lists.
    struct Early;

    impl Layer for Early {
        fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
            let range = &mut read.request.range;
            range.end = range.end.min(10);
            (range.start < range.end).then_some(read)
        }

        fn map(&self, asked: &Read, opened: Opened, _: &ReadContext) -> Opened {
            let end = asked.request.range.end;
            opened.map_list(move |list| list.into_iter().map(|entry| format!("{entry} of {end}")).collect())
        }
    }

    #[test]
    fn a_layer_changes_the_read_and_its_answer() {
        let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
        let view: Arc<dyn Queryable> =
            Arc::new(Layered { layer: &Early, source: Layered { layer: Early, source: Ranges } });
        let matchers = [Matcher::equal("a", "b")];
        let selector = Selector { matchers: &matchers, range: TimeRange { start: 3, end: 20 } };
        let asked = "[a=\"b\"] TimeRange { start: 3, end: 10 } of 10 of 20";
        assert_eq!(view.label_names(&selector, 0, &ctx).expect("names"), [asked]);
        assert_eq!(view.label_values("x", &selector, 0, &ctx).expect("values"), [asked]);
    }

    /// A view that has nothing to ask answers each form of a read without its source.
    #[test]
    fn a_read_of_nothing_is_answered_in_each_form() {
        let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
        let view = Layered { layer: Early, source: Ranges };
        let range = TimeRange { start: 10, end: 20 };
        let late = Selector { matchers: &[], range };
        let mut series = Vec::new();
        assert!(!view.select(&late, &ctx).expect("opens").next_batch(&mut series).expect("no error"));
        assert!(series.is_empty());
        assert_eq!(view.estimate(&late, &ctx).expect("estimates"), Some(Default::default()));
        assert!(view.label_names(&late, 0, &ctx).expect("names").is_empty());
        assert!(view.label_values("x", &late, 0, &ctx).expect("values").is_empty());
        let scan = LabelValueScan { name: "x", prefix: "", range };
        let mut count = 0;
        let mut visit = |_: &str| {
            count += 1;
            true
        };
        view.scan_label_values(&scan, &ctx, &mut visit).expect("visits");
        assert_eq!(count, 0);
        let search = SoleLabelValues { name: "x", range };
        let mut cursor = view.sole_label_values(&search, &ctx).expect("searches").expect("a cursor");
        assert_eq!(cursor.seek("").expect("searched"), None);
    }
}
