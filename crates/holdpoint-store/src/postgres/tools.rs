//! Tool sets. One is stored once and never changes, so those that were seen are remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool_postgres::GenericClient;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::TenantId;

use super::PostgresStore;
use super::rows::Done;
use crate::{Error, compact};

/// How many are remembered. When there are more, it begins anew.
const KNOWN_MAX: usize = 256;

/// Tool sets that are stored, by tenant and digest.
type Known = HashMap<(TenantId, Vec<u8>), Arc<[ToolDefinition]>>;
pub(super) type Shared = Mutex<Known>;

impl PostgresStore {
    pub(super) async fn tools(
        &self,
        client: &impl GenericClient,
        tenant: &TenantId,
        digest: Option<&[u8]>,
    ) -> Done<Arc<[ToolDefinition]>> {
        let Some(digest) = digest else { return Ok(Arc::from([])) };
        if let Some(known) = self.known_tools(tenant, digest) {
            return Ok(known);
        }
        let sql = "SELECT tools FROM tool_set WHERE tenant_id = $1 AND digest = $2";
        let statement = client.prepare_cached(sql).await?;
        let row = client.query_one(&statement, &[&tenant.as_str(), &digest]).await?;
        let body = compact::unpress(row.try_get(0)?)?;
        let tools =
            serde_json::from_slice(&body).map_err(|error| Error::Corrupt(format!("a tool set: {error}")))?;
        self.know_tools(tenant, digest, &tools);
        Ok(tools)
    }

    pub(super) fn known_tools(&self, tenant: &TenantId, digest: &[u8]) -> Option<Arc<[ToolDefinition]>> {
        self.all_known().get(&(tenant.clone(), digest.to_vec())).cloned()
    }

    /// This one is stored.
    pub(super) fn know_tools(&self, tenant: &TenantId, digest: &[u8], tools: &Arc<[ToolDefinition]>) {
        let mut known = self.all_known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((tenant.clone(), digest.to_vec()), Arc::clone(tools));
    }

    fn all_known(&self) -> MutexGuard<'_, Known> {
        self.tool_sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
