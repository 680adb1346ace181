//! Contract of a storage client: objects and multipart uploads.

use object_store::multipart::MultipartStore;
use object_store::{ObjectMeta, ObjectStore};

/// A storage client.
pub(crate) trait Backend: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Backend for T {}

/// Time of the last write in milliseconds since 1970-01-01 UTC; `None` where it is not known.
pub(crate) fn known_time(object: &ObjectMeta) -> Option<i64> {
    Some(object.last_modified.timestamp_millis()).filter(|&ms| ms != 0)
}
