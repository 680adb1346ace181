//! Contract of a storage client: objects and multipart uploads.

use object_store::ObjectStore;
use object_store::multipart::MultipartStore;

/// A storage client.
pub(crate) trait Backend: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Backend for T {}
