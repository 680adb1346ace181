//! Loom's locks with the interface of `parking_lot`'s.
//! Fair unlocking is a plain unlock here: loom tries all orders anyway.

use std::ops::{Deref, DerefMut};

use loom::sync;

const POISON: &str = "a panic ends the model, so its lock is never used again";

pub struct Mutex<T>(sync::Mutex<T>);

/// Empty only while its thread waits at a [`Condvar`] or lets others have the lock.
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>, &'a sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(POISON)), &self.0)
    }
}

impl<T> MutexGuard<'_, T> {
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }

    pub fn unlocked_fair<U>(guard: &mut Self, during: impl FnOnce() -> U) -> U {
        guard.0 = None;
        let result = during();
        guard.0 = Some(guard.1.lock().expect(POISON));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the guard is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the guard is held")
    }
}

pub struct Condvar(sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("the guard is held");
        guard.0 = Some(self.0.wait(held).expect(POISON));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub struct RwLock<T>(sync::RwLock<T>);
pub struct RwLockReadGuard<'a, T>(sync::RwLockReadGuard<'a, T>);
pub struct RwLockWriteGuard<'a, T>(sync::RwLockWriteGuard<'a, T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(self.0.read().expect(POISON))
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(self.0.write().expect(POISON))
    }
}

impl<T> RwLockReadGuard<'_, T> {
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
