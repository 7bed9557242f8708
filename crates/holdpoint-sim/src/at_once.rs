//! What the store in memory answers without waiting, from where nothing can be waited for.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The value of a future that is ready. `None` of one that is not.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
