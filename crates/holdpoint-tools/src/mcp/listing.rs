//! All tools of a server, page by page, within bounds.

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::{Peer, RoleClient, ServiceError};

/// The most tools of one server.
pub const TOOLS_MAX: usize = 512;
/// The most pages its listing may have.
pub const PAGES_MAX: usize = 64;

pub async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
        return Err("it says that it offers no tools".into());
    }
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        // Not `Peer::list_tools`, which answers from a cache, and even from a stale one when the server fails.
        let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let page = match peer.send_request(request).await {
            Ok(ServerResult::ListToolsResult(page)) => page,
            Ok(_) => return Err("it answered the listing with something else".into()),
            Err(ServiceError::McpError(error)) => {
                return Err(format!("it refused to list its tools: {}", error.message));
            }
            Err(_) => return Err("the connection was lost while it listed its tools".into()),
        };
        tools.extend(page.tools);
        if tools.len() > TOOLS_MAX {
            return Err(format!(
                "it lists more than {TOOLS_MAX} tools; no model can choose among so many, and none is offered"
            ));
        }
        if page.next_cursor.is_none() {
            return Ok(tools);
        }
        if page.next_cursor == cursor {
            return Err("its listing has no end: a page names itself as the next".into());
        }
        cursor = page.next_cursor;
    }
    Err(format!("its listing has more than {PAGES_MAX} pages"))
}
