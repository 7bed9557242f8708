//! An agent whose tools are a server's that nobody here wrote: asked about like any other call, and run once approved.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::path::PathBuf;

use common::process::Serving;
use common::site::{Site, script};
use serde_json::json;

/// The server of files, as npm installed it.
fn files() -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../holdpoint-tools/tests/mcp");
    let path = folder.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    assert!(path.exists(), "{} is not there: run `npm ci` in {}", path.display(), folder.display());
    path.to_str().unwrap().to_owned()
}

fn site() -> Site {
    let write = ("files__write_file", json!({"path": "note.txt", "content": "from a server"}));
    let site = Site::new(&script(&[write]));
    site.configure("", "tools = []\nmcp = [\"files\"]");
    let config = std::fs::read_to_string(site.config()).unwrap();
    let server =
        format!("\n[mcp.files]\ncommand = \"node\"\nargs = [{:?}, \".\"]\ncwd = \"work\"\n", files());
    site.write("holdpoint.toml", &(config + &server));
    site
}

#[test]
fn a_call_of_a_servers_tool_asks_and_runs_once_approved() {
    let site = site();
    let serving = Serving::start(site.serve());
    let (status, body) = serving.server.chat("note it");
    assert_eq!(status, 202, "{body}");
    let pending = serving.server.pending().remove(0);
    assert_eq!(pending["request"]["toolName"], "files__write_file");
    assert_eq!(pending["request"]["render"]["title"], "main wants to run files / write_file");
    assert!(!site.path("work/note.txt").exists(), "nothing runs before its decision");

    let (status, body) = serving.server.decide(&pending, "approve", json!({}));
    assert_eq!(status, 200, "{body}");
    common::until("the file", || {
        std::fs::read_to_string(site.path("work/note.txt")).ok().filter(|text| text == "from a server")
    });
}

#[test]
fn a_server_of_tools_that_does_not_start_is_a_warning_and_costs_nothing_else() {
    let site = Site::new(&script(&[("Write", json!({"path": "a.txt", "content": "a"}))]));
    site.configure("", "mcp = [\"gone\"]");
    let config = std::fs::read_to_string(site.config()).unwrap();
    site.write("holdpoint.toml", &(config + "\n[mcp.gone]\ncommand = \"/no/such/program\"\n"));
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.chat("write").0, 202);
}

#[test]
fn a_server_that_no_agent_lists_is_not_started_and_one_that_is_not_declared_is_refused() {
    let site = Site::new(&script(&[("Write", json!({"path": "a.txt", "content": "a"}))]));
    site.configure("", "");
    let config = std::fs::read_to_string(site.config()).unwrap();
    let server = "\n[mcp.idle]\ncommand = \"touch\"\nargs = [\"started\"]\n";
    site.write("holdpoint.toml", &(config + server));
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.chat("write").0, 202);
    assert!(!site.path("started").exists());
    drop(serving);
    site.configure("", "mcp = [\"nope\"]");
    let config = std::fs::read_to_string(site.config()).unwrap();
    site.write("holdpoint.toml", &(config + server));
    let output = site.serve().output().unwrap();
    let said = common::process::text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("hint: there are: idle"), "{said}");
}
