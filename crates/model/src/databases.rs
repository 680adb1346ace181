//! Catalogue of the databases of InfluxDB clients: databases, retention policies, continuous queries and
//! users of each tenant.
//!
//! Invariants: names are unique within their list; every retention policy has a store of its own, whose id
//! was never used before; lists have the order of creation.
//! Not here: the rules of changes (`change`), the copy in a bucket (`bucket`), the file
//! (`format::databases`).

mod bucket;
mod bucket_store_id;
mod catalog;
mod change;

pub use bucket::{Adopted, BucketDatabase, BucketDatabases, BucketPolicy, DroppedStore, Followed, Recorded};
pub use bucket_store_id::{BucketStoreId, BucketStoreIdError};
pub use catalog::{
    AUTOGEN, BucketDrop, CONTINUOUS_QUERY_COUNT_MAX, ContinuousQuery, DATABASE_COUNT_MAX, DAY_NS, Database,
    DatabaseCatalog, HOUR_NS, NAME_BYTES_MAX, POLICY_COUNT_MAX, Privilege, RetentionPolicy,
    STORE_NAME_BYTES_MAX, TenantCatalog, USER_COUNT_MAX, User,
};
pub use change::{CatalogChange, CatalogError, PolicyOptions};
