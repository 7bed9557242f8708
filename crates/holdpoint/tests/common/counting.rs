//! A store that counts what is asked of it, and says that others write to it too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdpoint::store::*;

/// Another way to a store that somebody else uses as well.
pub struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl Counting {
    pub fn of(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, calls: Mutex::default() })
    }

    /// How often each was called since it was last asked, but for what is asked of a store regularly, whoever watches.
    pub fn taken(&self) -> BTreeMap<&'static str, usize> {
        let mut calls = std::mem::take(&mut *self.calls.lock().unwrap());
        let regularly = [
            "now",
            "next_deadline",
            "expire_due",
            "presets_due",
            "remind_due",
            "set_aside",
            "recover",
            "owned",
            "tidy",
        ];
        calls.retain(|name, _| !regularly.contains(name));
        calls
    }
}

impl Wrap for Counting {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn around<'a, T: Send + 'a>(&'a self, call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
        *self.calls.lock().unwrap().entry(call.name).or_default() += 1;
        doing
    }

    fn shared(&self) -> bool {
        true
    }
}
