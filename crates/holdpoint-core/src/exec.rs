//! The idempotency key of a call: the same for every attempt, in every process.

use holdpoint_protocol::{CallId, ExecId, TenantId};
use sha2::{Digest, Sha256};

/// Derives the key from tenant and call, so that it needs no storage of its own to be stable.
pub fn exec_id(tenant: &TenantId, call: CallId) -> ExecId {
    let mut hash = Sha256::new();
    hash.update(b"holdpoint.exec.v1\0");
    hash.update(tenant.as_str().as_bytes());
    hash.update([0]);
    hash.update(call.run.0.as_bytes());
    hash.update(call.round.to_be_bytes());
    hash.update(call.index.to_be_bytes());
    let full = hash.finalize();
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&full[..16]);
    // Version 8: a UUID whose bits have a meaning of our own.
    ExecId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdpoint_protocol::RunId;

    use super::*;

    #[test]
    fn every_call_has_a_key_of_its_own_and_the_same_one_each_time() {
        let tenants = ["acme", "other"].map(|name| TenantId::new(name).unwrap());
        let runs = [1, 2].map(|n| RunId(uuid::Uuid::from_u128(n)));
        let mut keys = BTreeSet::new();
        for tenant in &tenants {
            for run in runs {
                for (round, index) in [(1, 0), (1, 1), (2, 0), (0, 1)] {
                    let call = CallId { run, round, index };
                    assert_eq!(exec_id(tenant, call), exec_id(tenant, call));
                    keys.insert(exec_id(tenant, call).to_string());
                }
            }
        }
        assert_eq!(keys.len(), 16);
    }
}
