//! What the cases share: sites, instances, and short words for what people do.

use std::sync::Arc;

use holdpoint_faults::{Cluster, Proxy};
use serde_json::{Value, json};

use crate::common::http::{self, Server};
use crate::common::process::Serving;
use crate::common::site::{Database, Site, script};
use crate::common::until;

/// One gated command, on a database of its own in the cluster that the cases share.
pub fn bash(command: &str) -> Site {
    Site::on(Database::postgres(), &script(&[("Bash", json!({ "command": command }))]))
}

/// The same in another cluster.
pub fn bash_in(cluster: &Arc<Cluster>, command: &str) -> Site {
    Site::on(Database::in_cluster(cluster), &script(&[("Bash", json!({ "command": command }))]))
}

pub fn serve(site: &Site) -> Serving {
    Serving::start(site.serve())
}

/// An instance whose database is behind a proxy of its own.
pub fn serve_behind_a_proxy(site: &Site, cluster: &Cluster) -> (Serving, Proxy) {
    let proxy = Proxy::to(cluster.address());
    (Serving::start(site.serve_through(&proxy)), proxy)
}

/// Starts a run that waits for a person; gives its id.
pub fn start(server: &Server) -> String {
    let (status, answer) = server.chat("go");
    assert_eq!(status, 202, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

/// What the run waits for.
pub fn asked(server: &Server, run: &str, kind: &str) -> Value {
    until("a request", || {
        server.pending().into_iter().find(|request| request["runId"] == run && request["kind"] == kind)
    })
}

pub fn decide(server: &Server, request: &Value, word: &str) {
    let (status, answer) = server.decide(request, word, json!({}));
    assert_eq!(status, 200, "{answer}");
}

pub fn body(request: &Value, word: &str) -> Value {
    json!({ "decision": word, "digest": request["request"]["digest"] })
}

pub fn path(request: &Value) -> String {
    format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap())
}

pub fn interaction(server: &Server, request: &Value) -> Value {
    server.get(&format!("/v1/interactions/{}", request["requestId"].as_str().unwrap()))
}

/// The stored events of a run that has ended.
pub fn events(server: &Server, run: &str) -> Vec<Value> {
    let (status, stream) =
        http::send(&server.url, Some(&server.token), "GET", &format!("/v1/runs/{run}/events"), None);
    assert_eq!(status, 200, "{stream}");
    let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(|json| serde_json::from_str(json.trim()).unwrap()).collect()
}

/// The run has ended well, its one call was answered once, and its record is whole.
pub fn assert_whole(server: &Server, run: &str) {
    assert_eq!(server.ended(run)["text"], "done");
    let events = events(server, run);
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("tool_result"), count("finish")), (1, 1), "{events:?}");
    assert_eq!(server.get(&format!("/v1/audit/verify?run={run}"))["items"][0]["whole"], true);
}

/// Decides whatever there is in doubt of this run: it is left as it is.
pub fn leave_what_is_in_doubt(server: &Server, run: &str) {
    let Ok((200, answer)) = server.try_get("/v1/interactions?status=pending") else { return };
    for request in answer["items"].as_array().into_iter().flatten() {
        if request["runId"] == run && request["kind"] == "in_doubt" {
            let _ = server.try_post(&path(request), &body(request, "leave"), None);
        }
    }
}
