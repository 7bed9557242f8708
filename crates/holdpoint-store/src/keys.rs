//! Idempotency keys: what all stores agree on.

use holdpoint_protocol::{ActorId, TenantId};

use crate::{Context, IdempotencyKey};

/// How long a key stays reserved for a request that is being answered. After that the process that reserved it is
/// taken to be gone, and the next request with the key is answered afresh.
pub const KEY_RESERVED_MS: u64 = 60_000;

/// A key is its actor's own: what somebody else sends under the same text is another key.
pub(crate) fn id(cx: &Context, key: &IdempotencyKey) -> (TenantId, ActorId, String, String) {
    (cx.tenant.clone(), cx.actor.clone(), key.scope.clone(), key.key.clone())
}
