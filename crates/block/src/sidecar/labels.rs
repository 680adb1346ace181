//! Label names and values by a sidecar, on a thread that may wait.

use std::collections::BTreeSet;

use chronolith_format::bucket::Unpacker;
use chronolith_format::bucket::sidecar::{Directory, PageSeries};
use chronolith_model::{METRIC_NAME, QueryError, ReadContext, Selector};

use super::contents::{Part, SharedContents};
use super::finder::{Purpose, SeriesFinder, name_page_range};
use crate::label_queries::{insert_new, limit_of};
use crate::source::{BlockFile, ByteRange};
use crate::waves::ExactWave;

/// Label names, ascending, at most `limit` (0 = all).
pub(super) fn label_names(
    contents: &SharedContents,
    selector: &Selector<'_>,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    if !selector.range.overlaps(contents.range()) {
        return Ok(Vec::new());
    }
    if selector.matchers.is_empty() && has_offsets(contents, ctx)? {
        let names = contents.offsets().into_iter().flat_map(|offsets| offsets.label_names());
        return Ok(names.take(limit_of(limit)).map(str::to_owned).collect());
    }
    let mut names = BTreeSet::new();
    for_each_series(contents, selector, ctx, &mut |series| {
        series.pairs().for_each(|(name, _)| insert_new(&mut names, name));
    })?;
    Ok(names.into_iter().take(limit_of(limit)).collect())
}

/// Values of label `name`, ascending, at most `limit` (0 = all).
pub(super) fn label_values(
    contents: &SharedContents,
    name: &str,
    selector: &Selector<'_>,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    if name.is_empty() || !selector.range.overlaps(contents.range()) {
        return Ok(Vec::new());
    }
    if selector.matchers.is_empty() && name == METRIC_NAME {
        let mut names = metric_names(contents, ctx)?;
        names.truncate(limit_of(limit));
        return Ok(names);
    }
    if selector.matchers.is_empty() && has_offsets(contents, ctx)? {
        return values_of_entries(contents, name, limit_of(limit), ctx);
    }
    let mut values = BTreeSet::new();
    for_each_series(contents, selector, ctx, &mut |series| {
        if let Some((_, value)) = series.pairs().find(|(found, _)| *found == name) {
            insert_new(&mut values, value);
        }
    })?;
    Ok(values.into_iter().take(limit_of(limit)).collect())
}

/// Reads the sparse offset table; returns false if the sidecar has none.
fn has_offsets(contents: &SharedContents, ctx: &ReadContext) -> Result<bool, QueryError> {
    if let Some(range) = contents.missing_range(Part::Offsets) {
        let bytes = contents.read(&ExactWave(vec![range]), &ctx.budget)?;
        contents.keep_all(&[Part::Offsets], &bytes)?;
    }
    Ok(contents.offsets().is_some())
}

/// Metric names of all series.
fn metric_names(contents: &SharedContents, ctx: &ReadContext) -> Result<Vec<String>, QueryError> {
    let mut found = Vec::new();
    let is_name = |name: &&str| !name.is_empty();
    match &contents.head().directory {
        Directory::Inline(names) => {
            found.extend(names.iter().map(|(name, _)| name).filter(is_name).map(str::to_owned));
        }
        Directory::Paged(pages) => {
            let wave = ExactWave(pages.iter().map(name_page_range).collect());
            let bytes = contents.read(&wave, &ctx.budget)?;
            let mut unpacker = Unpacker::default();
            for page in pages {
                let page_bytes = contents.exact(&bytes, &name_page_range(page))?;
                let names = page.decode(page_bytes, contents.head().series_count, &mut unpacker);
                let names = names.map_err(|error| contents.damaged(&error))?;
                found.extend(names.iter().map(|(name, _)| name).filter(is_name).map(str::to_owned));
            }
        }
    }
    Ok(found)
}

/// Values of a label in the postings offset table.
fn values_of_entries(
    contents: &SharedContents,
    name: &str,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Vec<String>, QueryError> {
    let range = contents.offsets().and_then(|offsets| Some((offsets, offsets.range_of_prefix(name, "")?)));
    let Some((offsets, range)) = range else { return Ok(Vec::new()) };
    let bytes_range = ByteRange { file: BlockFile::Index, start: range.bytes.start, end: range.bytes.end };
    let bytes = contents.read(&ExactWave(vec![bytes_range]), &ctx.budget)?;
    let mut values = Vec::new();
    let visited = offsets.visit(&range, bytes.at(BlockFile::Index, range.bytes.start), &mut |value, _| {
        values.push(value.to_owned());
        values.len() < limit
    });
    visited.map_err(|error| contents.damaged(&error))?;
    Ok(values)
}

/// Calls `visit` with each series that matches, whatever times its chunks have.
fn for_each_series(
    contents: &SharedContents,
    selector: &Selector<'_>,
    ctx: &ReadContext,
    visit: &mut dyn FnMut(&PageSeries<'_>),
) -> Result<(), QueryError> {
    let mut finder = SeriesFinder::new(contents, selector.matchers, Purpose::Labels, &ctx.budget);
    loop {
        while finder.has_page() {
            ctx.check()?;
            finder.visit_page(&mut |series| {
                visit(&series);
                Ok(())
            })?;
        }
        let bytes = match finder.next_wave() {
            Some(wave) => contents.read(&wave, &ctx.budget)?,
            None => return Ok(()),
        };
        finder.push(bytes)?;
    }
}
