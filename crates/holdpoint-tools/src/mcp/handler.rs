//! What a server may say to us unasked: how far a call is, and that its tools are others now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{NotificationContext, RoleClient};
use tokio::sync::{mpsc, watch};

/// How many reports of one call wait to be passed on; more are dropped, since only the latest matters.
const PROGRESS_BUFFER: usize = 32;

/// Our end of one connection. Cheap to clone. Everything a server could ask of us (sampling, roots, elicitation)
/// is left at "no": it is not offered, and the default answers decline.
#[derive(Clone, Default)]
pub struct Handler {
    calls: Arc<Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>>>,
    /// Counts the announcements that the listing has changed.
    changes: Arc<watch::Sender<u64>>,
}

impl Handler {
    /// The reports of one call.
    pub fn watch(&self, token: ProgressToken) -> Reports {
        let (sender, receiver) = mpsc::channel(PROGRESS_BUFFER);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), sender);
        Reports { receiver, token, handler: self.clone() }
    }

    /// How often a change of the listing was announced.
    pub fn announced(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A change of the listing was announced.
    pub fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// The reports of one call, until dropped.
pub struct Reports {
    receiver: mpsc::Receiver<ProgressNotificationParam>,
    token: ProgressToken,
    handler: Handler,
}

impl Reports {
    pub async fn next(&mut self) -> Option<ProgressNotificationParam> {
        self.receiver.recv().await
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.handler.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

impl ClientHandler for Handler {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.get(&params.progress_token) {
            // A full buffer: somebody reports faster than anybody reads.
            let _ = call.try_send(params);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.announce();
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("holdpoint", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }
}
