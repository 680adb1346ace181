//! Tests of credentials.

use std::path::{Path, PathBuf};

use super::*;
use crate::kafka::settings::{Login, Security};

#[test]
fn passwords_reach_the_client_and_stay_out_of_its_debug_output() {
    let (env, ..) = Env::fake(0, 1);
    env.disk.create_dir_all(Path::new("/s")).unwrap();
    let password_file = PathBuf::from("/s/password");
    env.disk.write_atomic(&password_file, b"hunter2\n").unwrap();
    let login = Some(Login::Plain { user: "alice".to_owned(), password_file });
    let auth = security::load(&env.disk, &Security { tls: None, login }).unwrap().unwrap();
    assert_eq!(auth.plain_credentials().unwrap().to_auth_bytes().as_slice(), b"\0alice\0hunter2");
    assert!(!format!("{auth:?}").contains("hunter2"));
    assert!(security::load(&env.disk, &Security::default()).unwrap().is_none());
}
