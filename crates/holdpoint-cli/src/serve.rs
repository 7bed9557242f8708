//! `holdpoint serve`.

use std::io::IsTerminal;

use serde::Serialize;

use crate::args;
use crate::config;
use crate::fail::{Fail, Result};
use crate::host::{Host, StopSignal};
use crate::term::{self, Style};

/// The line a program that starts a server reads first.
#[derive(Serialize)]
#[serde(tag = "type", rename = "server")]
pub(crate) struct ServerLine<'a> {
    pub(crate) url: &'a str,
    pub(crate) token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dir: Option<&'a str>,
}

impl ServerLine<'_> {
    /// As one line of JSON.
    pub(crate) fn print(&self) -> Result<()> {
        let json = serde_json::to_string(self)
            .map_err(|error| Fail::new(format!("the server's line cannot be written: {error}")))?;
        term::out(&json);
        Ok(())
    }
}

/// Runs the server until it is told to stop.
pub(crate) async fn serve(args: args::Serve) -> Result<()> {
    let stop = StopSignal::new()?;
    let config = config::load(args.config.as_deref()).await?;
    for warning in &config.warnings {
        term::say(&format!("warning: {warning}"));
    }
    let host = Host {
        listen: config.listen,
        agents: config.agents,
        bypass_approval: config.bypass_approval,
        shutdown_grace: config.shutdown_grace,
        retention: config.retention,
    };
    let hosted = host.start(&config.database).await?;
    let (url, token) = (hosted.server.url(), hosted.token.reveal());
    if std::io::stdout().is_terminal() {
        let style = Style::of(&std::io::stdout());
        term::out(&format!(
            "{}\n  address   {url}\n  database  {}\n  token     {token}\n",
            style.bold("Holdpoint is running"),
            config.database
        ));
        term::out(
            "The token is shown this once, and is another one after each start. In another terminal:\n",
        );
        term::out(&format!("  holdpoint inbox --server {url}\n"));
        term::out("asks for it. Ctrl-C stops the server; what waits goes on waiting.");
    } else {
        ServerLine { url: &url, token, dir: None }.print()?;
    }
    tracing::info!(%url, database = %config.database, "serving");
    hosted.server.serve(stop.told()).await.map_err(|error| Fail::new(error.to_string()))
}
