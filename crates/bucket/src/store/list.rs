//! Listings: pages of keys below a prefix, or the directories and objects directly below it.
//!
//! Invariants: keys ascend and are relative to the prefix of the store; a page is bounded by the caller's
//! limit and by [`PAGE_KEYS_MAX`].

use futures_util::TryStreamExt;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::attempts::Answer;
use super::backend::known_time;
use super::request::{Operation, RequestContext};
use super::retry::Failure;
use crate::error::BucketError;
use crate::store::Store;

/// Listings that are compared before a request fails.
const LISTINGS_MAX: u32 = 6;
/// Keys of the largest page, and of the largest listing with a delimiter.
pub const PAGE_KEYS_MAX: usize = 100_000;

/// Part of the bucket to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Directory, without a slash at its end; empty for all.
    pub prefix: String,
    /// Lists the objects and directories directly below the prefix, in one page.
    pub is_delimited: bool,
    /// Begins after this key.
    pub after: Option<String>,
    /// Keys of a page; 0 stands for [`PAGE_KEYS_MAX`].
    pub keys_max: usize,
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Key below the prefix of the store.
    pub key: String,
    /// Bytes of the object.
    pub object_bytes: u64,
    /// Time of the last write in milliseconds since 1970-01-01 UTC; `None` on a local directory.
    pub modified_ms: Option<i64>,
    /// ETag, if the listing has them.
    pub etag: Option<String>,
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects, ascending by key.
    pub objects: Vec<ListedObject>,
    /// Directories directly below the prefix, ascending; only of a listing with a delimiter.
    pub prefixes: Vec<String>,
    /// Key after which the next page begins; `None` on the last page.
    pub next_after: Option<String>,
}

impl Store {
    /// Lists one page of keys.
    ///
    /// Cost: one request per 1000 keys.
    ///
    /// # Errors
    /// [`BucketError::Refused`] if the bucket does not exist or a listing with a delimiter has more than
    /// [`PAGE_KEYS_MAX`] keys.
    pub async fn list(
        &self,
        context: &RequestContext,
        options: &ListOptions,
    ) -> Result<ListPage, BucketError> {
        let prefix = self.list_prefix(&options.prefix)?;
        let shown = if options.prefix.is_empty() { "/" } else { options.prefix.as_str() };
        let attempt = || {
            let call = async {
                let page = if options.is_delimited {
                    self.list_directory(prefix.as_ref()).await
                } else {
                    self.list_keys(prefix.as_ref(), options).await
                };
                Ok(Answer::bare(page?))
            };
            self.requests.once(context, Operation::List, call)
        };
        let listed = self.requests.retried(context, Operation::List, shown, attempt).await;
        listed.map_err(|error| match error {
            // A prefix without keys is an empty page, so this is the bucket itself.
            BucketError::NotFound { .. } => {
                let detail = "the bucket or container does not exist".to_owned();
                BucketError::Refused { what: format!("list {shown}"), detail }
            }
            error => error,
        })
    }

    /// As [`Store::list`], sent twice at the same time, then again until two listings agree: a listing has
    /// no checksum, and a key that is missing in a damaged one would be missing in answers in silence. An
    /// empty one is compared with a listing of the other form, with a delimiter or without.
    ///
    /// # Errors
    /// [`BucketError::Unavailable`] if each listing differs from the one before; as [`Store::list`].
    pub async fn list_confirmed(
        &self,
        context: &RequestContext,
        options: &ListOptions,
    ) -> Result<ListPage, BucketError> {
        let (mut page, mut next) =
            futures_util::future::try_join(self.list(context, options), self.list(context, options)).await?;
        let mut listing_count = 2;
        loop {
            let is_empty = next.objects.is_empty() && next.prefixes.is_empty();
            if page == next && !(is_empty && self.has_keys(context, options).await?) {
                return Ok(next);
            }
            if listing_count == LISTINGS_MAX {
                return Err(BucketError::Unavailable {
                    what: format!("list {}", options.prefix),
                    attempts: LISTINGS_MAX,
                    last: "each listing differs from the one before".to_owned(),
                });
            }
            page = std::mem::replace(&mut next, self.list(context, options).await?);
            listing_count += 1;
        }
    }

    /// Objects directly in `folder`, which has no folders of its own: by listings of both forms, sent at the
    /// same time, until they agree. A key that is missing in one form every time is noticed.
    ///
    /// # Errors
    /// [`BucketError::Unavailable`] if they differ each time; as [`Store::list`].
    pub async fn list_folder_confirmed(
        &self,
        context: &RequestContext,
        folder: &str,
    ) -> Result<Vec<ListedObject>, BucketError> {
        let delimited =
            ListOptions { prefix: folder.to_owned(), is_delimited: true, ..ListOptions::default() };
        let plain = ListOptions { is_delimited: false, ..delimited.clone() };
        let is_direct = |object: &ListedObject| {
            let name = object.key.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            name.is_some_and(|name| !name.contains('/'))
        };
        for _ in 0..LISTINGS_MAX / 2 {
            let both = (self.list(context, &delimited), self.list(context, &plain));
            let (delimited, mut plain) = futures_util::future::try_join(both.0, both.1).await?;
            plain.objects.retain(is_direct);
            let keys =
                |page: &ListPage| page.objects.iter().map(|object| object.key.clone()).collect::<Vec<_>>();
            if keys(&delimited) == keys(&plain) {
                return Ok(delimited.objects);
            }
        }
        Err(BucketError::Unavailable {
            what: format!("list {folder}"),
            attempts: LISTINGS_MAX,
            last: "a listing with a delimiter has other keys than one without".to_owned(),
        })
    }

    /// Returns true if a listing of the other form, with a delimiter or without, has a key of this one.
    async fn has_keys(&self, context: &RequestContext, options: &ListOptions) -> Result<bool, BucketError> {
        let other = ListOptions { is_delimited: !options.is_delimited, keys_max: 1, ..options.clone() };
        let found = self.list(context, &other).await?;
        let after = options.after.as_deref().unwrap_or_default();
        let mut keys = found.objects.iter().map(|object| object.key.as_str());
        Ok(keys.any(|key| key > after) || found.prefixes.iter().any(|prefix| prefix.as_str() > after))
    }

    async fn list_keys(&self, prefix: Option<&Path>, options: &ListOptions) -> Result<ListPage, Failure> {
        let keys_max = match options.keys_max {
            0 => PAGE_KEYS_MAX,
            keys_max => keys_max.min(PAGE_KEYS_MAX),
        };
        let mut stream = match &options.after {
            None => self.backend.list(prefix),
            Some(after) => {
                let after = Path::parse(self.full_key(after)).map_err(object_store::Error::from)?;
                self.backend.list_with_offset(prefix, &after)
            }
        };
        let mut page = ListPage::default();
        while let Some(object) = stream.try_next().await? {
            if page.objects.len() == keys_max {
                page.next_after = page.objects.last().map(|last| last.key.clone());
                break;
            }
            check_below(prefix, &object.location)?;
            page.objects.extend(self.listed(object));
        }
        Ok(page)
    }

    async fn list_directory(&self, prefix: Option<&Path>) -> Result<ListPage, Failure> {
        let found = self.backend.list_with_delimiter(prefix).await?;
        let keys = found.objects.len() + found.common_prefixes.len();
        if keys > PAGE_KEYS_MAX {
            let expected_bytes = PAGE_KEYS_MAX as u64;
            return Err(Failure::Size {
                what: "keys of a listing",
                expected_bytes,
                found_bytes: keys as u64,
            });
        }
        let locations = found.objects.iter().map(|object| &object.location).chain(&found.common_prefixes);
        locations.into_iter().try_for_each(|location| check_below(prefix, location))?;
        let prefixes = found.common_prefixes.iter().filter_map(|path| self.relative(path.as_ref()));
        let mut page = ListPage {
            prefixes: prefixes.collect(),
            objects: found.objects.into_iter().filter_map(|object| self.listed(object)).collect(),
            next_after: None,
        };
        page.prefixes.sort_unstable();
        page.objects.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(page)
    }

    fn listed(&self, object: ObjectMeta) -> Option<ListedObject> {
        let modified_ms = known_time(&object);
        Some(ListedObject {
            key: self.relative(object.location.as_ref())?,
            object_bytes: object.size,
            modified_ms,
            etag: object.e_tag,
        })
    }

    fn list_prefix(&self, prefix: &str) -> Result<Option<Path>, BucketError> {
        match (prefix, self.prefix.as_str()) {
            ("", "") => Ok(None),
            ("", own) => Ok(Path::parse(own).ok()),
            (prefix, _) => Ok(Some(self.location(prefix)?)),
        }
    }
}

/// Checks that a key of a listing begins with its prefix: any other key is from another folder's listing.
fn check_below(prefix: Option<&Path>, location: &Path) -> Result<(), Failure> {
    match prefix {
        Some(prefix) if !location.prefix_matches(prefix) => {
            Err(Failure::ForeignKey { prefix: prefix.to_string(), key: location.to_string() })
        }
        _ => Ok(()),
    }
}
