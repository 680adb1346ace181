//! Hashes of bcrypt, right and wrong passwords, their queue and their cache.

use super::*;

fn hash(password: &str) -> BcryptHash {
    BcryptHash::parse(&bcrypt::hash(password, COST_MIN).expect("hashing")).expect("a hash")
}

fn passwords() -> Passwords {
    Passwords::new(&Rng::from_seed(1))
}

#[track_caller]
fn check_hash(text: &str, want: Result<u32, HashError>) {
    assert_eq!(BcryptHash::parse(text).map(|hash| hash.cost()), want, "{text:?}");
}

#[test]
fn texts_that_are_no_bcrypt_hash_are_refused() {
    let rest = "X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
    check_hash(&format!("$2y$10${rest}"), Ok(10));
    check_hash(&format!("$2a$31${rest}"), Ok(31));
    check_hash(&format!("$2b$03${rest}"), Err(HashError::Cost(3)));
    check_hash(&format!("$2b$32${rest}"), Err(HashError::Cost(32)));
    check_hash(&format!("$2b$+9${rest}"), Err(HashError::Form));
    check_hash(&format!("$3b$10${rest}"), Err(HashError::Form));
    check_hash(&format!("$2b$10${}", &rest[1..]), Err(HashError::Form));
    check_hash(&format!("$2b$10$!{}", &rest[1..]), Err(HashError::Form));
    check_hash(&format!("$2b$10${rest}$"), Err(HashError::Form));
    check_hash("secret", Err(HashError::Form));
    check_hash("", Err(HashError::Form));
}

#[test]
fn the_hash_is_absent_from_debug_output() {
    assert_eq!(format!("{:?}", hash("secret")), "BcryptHash { cost: 4, .. }");
}

#[tokio::test]
async fn a_password_is_right_for_its_hash_alone() {
    let stored = hash("secret");
    let other = hash("other");
    let passwords = passwords();
    for _ in 0..2 {
        assert_eq!(passwords.is_right(Some(&stored), b"secret").await, Ok(true));
        assert_eq!(passwords.is_right(Some(&stored), b"Secret").await, Ok(false));
        assert_eq!(passwords.is_right(Some(&stored), b"").await, Ok(false));
        assert_eq!(passwords.is_right(Some(&other), b"secret").await, Ok(false));
        assert_eq!(passwords.is_right(None, b"secret").await, Ok(false));
    }
    assert_eq!(passwords.right.count(), 1, "only the right pair is remembered");
}

#[tokio::test]
async fn a_remembered_password_waits_neither_for_bcrypt_nor_for_its_queue() {
    let stored = hash("secret");
    let passwords = passwords();
    assert_eq!(passwords.is_right(Some(&stored), b"secret").await, Ok(true));
    let _running = passwords.worker.clone().acquire_owned().await.expect("open");
    let _waiting = passwords.queue.try_acquire_many(QUEUE_COUNT_MAX as u32).expect("an empty queue");
    assert_eq!(passwords.is_right(Some(&stored), b"secret").await, Ok(true));
    assert_eq!(passwords.is_right(Some(&stored), b"wrong").await, Err(Busy));
    assert_eq!(passwords.is_right(None, b"secret").await, Err(Busy));
}

#[tokio::test]
async fn a_changed_hash_is_not_served_from_memory() {
    let before = hash("secret");
    let after = hash("changed");
    let passwords = passwords();
    assert_eq!(passwords.is_right(Some(&before), b"secret").await, Ok(true));
    assert_eq!(passwords.is_right(Some(&after), b"secret").await, Ok(false));
    assert_eq!(passwords.is_right(Some(&after), b"changed").await, Ok(true));
}

#[tokio::test]
async fn a_cancelled_login_leaves_the_queue() {
    let stored = hash("secret");
    let passwords = passwords();
    let running = passwords.worker.clone().acquire_owned().await.expect("open");
    {
        let login = passwords.is_right(Some(&stored), b"secret");
        tokio::pin!(login);
        assert!(poll_once(login.as_mut()).await.is_none(), "bcrypt is busy");
        assert_eq!(passwords.queue.available_permits(), QUEUE_COUNT_MAX - 1);
    }
    assert_eq!(passwords.queue.available_permits(), QUEUE_COUNT_MAX);
    drop(running);
    assert_eq!(passwords.is_right(Some(&stored), b"secret").await, Ok(true));
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn an_unknown_user_costs_as_much_as_the_costliest_known_one() {
    let passwords = passwords();
    assert_eq!(passwords.dummy.lock().cost(), COST_DEFAULT);
    passwords.set_users([&BcryptHash::dummy(5), &BcryptHash::dummy(12), &BcryptHash::dummy(4)]);
    let dummy = passwords.dummy.lock().clone();
    assert_eq!(BcryptHash::parse(&dummy.text), Ok(dummy.clone()));
    assert_eq!(dummy.cost(), 12);
    // A malformed dummy would be refused before the first round, which would take no time.
    assert!(bcrypt::verify(b"any", &BcryptHash::dummy(4).text).is_ok());
    passwords.set_users([]);
    assert_eq!(passwords.dummy.lock().cost(), COST_DEFAULT);
}
